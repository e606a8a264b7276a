//! The number of open invitations, counted at each scrape: another process makes them.

use prometheus::IntGauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use time::OffsetDateTime;

use crate::Invites;

/// Shows how many invitations are open.
#[derive(Debug)]
pub struct OpenInvitations {
    /// `None` at a program that issues no certificates.
    invites: Option<Invites>,
    gauge: IntGauge,
}

impl OpenInvitations {
    /// Those of `invites`.
    ///
    /// # Errors
    /// Never: the name is right.
    pub fn new(invites: Option<Invites>) -> prometheus::Result<Self> {
        let gauge = IntGauge::new(
            "millrace_enrolment_invitations_open",
            "Invitations of a server that are neither used nor expired",
        )?;
        Ok(Self { invites, gauge })
    }
}

impl Collector for OpenInvitations {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let now = OffsetDateTime::now_utc();
        let open = self.invites.as_ref().map_or(0, |invites| invites.open(now));
        self.gauge.set(i64::try_from(open).unwrap_or(i64::MAX));
        self.gauge.collect()
    }
}
