//! UDP flows that RTSP flows set up.

use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::Core;
use millrace_tunnel::rtsp::{MediumFlow, NewMedium};

use super::{UdpFlow, UdpOpen};
use crate::role::ClientRole;

impl ClientRole {
    /// A player and its origin have agreed on a medium: asks for its flows, on the connection of the
    /// RTSP flow, where the server has the ports for them.
    pub(crate) fn on_medium(&mut self, core: &mut Core, medium: NewMedium) {
        let NewMedium { lane, player, flows } = medium;
        for MediumFlow { near, destination, medium } in flows {
            let medium = Some(medium);
            let open = UdpOpen { destination, near, client: player, lane, medium, door: None };
            if self.open_udp(core, open).is_none() {
                tracing::warn!(%player, "no UDP flow for an RTSP player: too many flows");
            }
        }
    }

    /// An RTSP flow, or one medium of it, is over: so are the requests for its flows.
    pub(crate) fn on_media_over(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        stream: u64,
        number: Option<u32>,
    ) {
        // Those that run have been ended with it.
        let over = |(key, it): (&u64, &UdpFlow)| {
            it.medium.as_ref().is_some_and(|it| it.is_of(conn, stream, number)).then_some(*key)
        };
        let over: Vec<_> = self.udp.flows.iter().filter_map(over).collect();
        for key in over {
            self.close_udp(core, key);
        }
    }
}
