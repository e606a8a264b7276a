//! Makes members of the family.

use super::bandwidth_probe::BandwidthProbe;
use super::config::PccConfig;
use super::controller::Pcc;
use crate::{Controller, ControllerConfig, PathStart, Time};

impl ControllerConfig for PccConfig {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        let pcc = Pcc::new(*self, start);
        if self.bandwidth_probe { Box::new(BandwidthProbe::new(pcc)) } else { Box::new(pcc) }
    }
}
