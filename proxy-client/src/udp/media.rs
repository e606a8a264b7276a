//! Media over UDP of RTSP flows.

use super::flows::{InterceptedUdpFlow, UdpFlows, UdpOpen};
use crate::flow_context::FlowContext;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::datagrams::UdpContent;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::rtsp::{MediumFlow, NewMedium};

impl UdpFlows {
    /// Requests the flows of a medium that a player and its origin have set up. They use the connection of
    /// the RTSP flow, because the server holds the ports there.
    pub(crate) fn on_medium(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        medium: NewMedium,
    ) {
        let NewMedium { group, player, flows } = medium;
        for MediumFlow { socket, destination, medium } in flows {
            let medium = Some(medium);
            let open = UdpOpen {
                destination,
                socket,
                client: player,
                group,
                medium,
                content: UdpContent::Media,
                source: None,
            };
            if self.open(context, core, open).is_none() {
                tracing::warn!(%player, "no UDP flow for an RTSP player: too many flows");
            }
        }
    }

    /// Ends the requests for the flows of an RTSP flow, or of one of its media, that has ended.
    pub(crate) fn on_media_over(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, stream): (ConnId, u64),
        number: Option<u32>,
    ) {
        // Established flows have ended with it.
        let over = |(key, it): (&u64, &InterceptedUdpFlow)| {
            it.medium.as_ref().is_some_and(|it| it.is_of(conn, stream, number)).then_some(*key)
        };
        let over: Vec<_> = self.flows.iter().filter_map(over).collect();
        for key in over {
            self.close(context, core, key);
        }
    }
}
