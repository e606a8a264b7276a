//! Faults that a test provokes.

use crate::event_loop::core::Core;
use crate::fault::{Fault, STALL_TIME};

impl Core {
    /// Lets the fault of the connection in `slot` happen if it is `here`.
    pub(crate) fn inject_fault(&mut self, slot: usize, here: Fault) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.fault != Some(here) {
            return;
        }
        conn.fault = None;
        match here {
            Fault::Stall => std::thread::sleep(STALL_TIME),
            _ => panic!("a fault of a test: {here:?}"),
        }
    }
}
