//! What is different at the two ends of the tunnel.

use std::io;
use std::time::Instant;

use mio::event::Event;

use crate::event_loop::core::Core;
use crate::flow_info::FlowInfo;
use crate::tunnel_event::TunnelEvent;

/// One end of the tunnel, within one worker: how flows come in, and where they go.
pub trait Role {
    /// Called once, before the loop starts.
    ///
    /// # Errors
    /// Whatever keeps the worker from doing its work.
    fn start(&mut self, core: &mut Core) -> io::Result<()>;

    /// An event of a source that the role registered under [`Core::role_token`].
    fn on_event(&mut self, core: &mut Core, key: usize, event: &Event);

    /// Another thread woke the worker.
    fn on_wake(&mut self, core: &mut Core);

    /// Something happened in the tunnel.
    fn on_tunnel_event(&mut self, core: &mut Core, notice: TunnelEvent);

    /// Time passes; called at least every [`Core::TICK`], and at [`Role::next_deadline`].
    fn on_tick(&mut self, core: &mut Core, now: Instant);

    /// When the role wants [`Role::on_tick`] earlier.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// A panic has interrupted [`Role::on_event`] for `key`: what it is for ends.
    fn on_panic(&mut self, core: &mut Core, key: usize);

    /// Take nothing new from now on.
    fn drain(&mut self, core: &mut Core);

    /// Flows that do not go through the tunnel, for the admin listener.
    fn bypassed_flows(&self) -> Vec<FlowInfo> {
        Vec::new()
    }

    /// Flows that have not reached the relay yet.
    fn pending(&self) -> usize;
}
