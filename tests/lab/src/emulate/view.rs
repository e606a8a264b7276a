//! What came of a session with a player, whatever kind of player it was, and what is looked after meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;
use thiserror::Error;

use super::places::Places;
use super::telemetry::Payload;
use super::traffic::Flow;
use crate::netns::Namespace;
use crate::results::Figures;
use crate::results::series::Screen;
use crate::scenario::Scenario;
use crate::site;
use crate::topology::Topology;

/// The first routing table of the flows that choose their congestion control by route.
const FIRST_TABLE: u32 = 1000;

/// Something else has ended the run.
#[derive(Debug, Clone, Copy, Error)]
#[error("the run ended before its time")]
pub struct EndedEarly;

/// A session as it was seen.
#[derive(Debug, Clone)]
pub struct View {
    /// Its figures, by their names; what never came is none.
    pub figures: Vec<(&'static str, Option<f64>)>,
    /// Second by second.
    pub seconds: Vec<Screen>,
    /// When the payload arrived.
    pub arrivals: Vec<Payload>,
    /// Why it says more about this machine than about the link.
    pub doubts: Vec<String>,
    /// What is kept of it beside its figures.
    pub account: Value,
}

impl View {
    /// What was on the screen `at_s` seconds into the session.
    pub fn screen(&self, at_s: f64) -> Screen {
        let second = (at_s >= 0.0).then(|| self.seconds.get(at_s as usize)).flatten();
        second.copied().unwrap_or_default()
    }

    /// Adds its figures to those of the flow.
    pub fn add_to(&self, figures: &mut Figures) {
        for &(name, value) in &self.figures {
            figures.set_if(name, value);
        }
    }
}

/// Gives the flows of players over the kernel's TCP their congestion control, by the way back from the
/// origin that they share: servers of others can't choose it for their sockets.
///
/// # Errors
/// When `ip` fails.
pub fn route(scenario: &Scenario, places: &Places, topology: &Topology) -> Result<()> {
    for (flow, place) in (0..).zip(&places.flows) {
        let group = &scenario.groups[place.group];
        if let (true, false, Some(cc)) = (group.is_watched(), place.is_apart, group.kernel_cc()) {
            topology.route_from(place.origin.ip(), FIRST_TABLE + flow, cc)?;
        }
    }
    Ok(())
}

/// Looks after a session while it lasts.
#[derive(Debug)]
pub struct Guard<'a> {
    /// Of the session.
    pub start: Instant,
    /// The same.
    pub stop: Instant,
    origin: String,
    over: &'a AtomicBool,
    host: &'a Namespace,
    /// The kernel's congestion control, until it has been looked at.
    unchecked: Option<&'a str>,
}

impl<'a> Guard<'a> {
    /// Of a flow in a run that began at `began`.
    pub fn of(flow: &Flow<'a>, began: Instant) -> Self {
        let at = |time_s| began + Duration::from_secs_f64(time_s);
        Self {
            start: at(flow.place.start_s),
            stop: at(flow.group.stop_s),
            origin: flow.place.origin.ip().to_string(),
            over: flow.over,
            host: flow.origin,
            unchecked: flow.group.kernel_cc(),
        }
    }

    /// To be called every now and then. In the middle of the session it looks whether the kernel uses the
    /// congestion control that it should.
    ///
    /// # Errors
    /// When it does not, or the run has ended before the session's time.
    pub fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.over.load(Ordering::Relaxed) && now < self.stop {
            return Err(EndedEarly.into());
        }
        let middle = self.start + self.stop.saturating_duration_since(self.start) / 2;
        if let Some(wanted) = self.unchecked.filter(|_| now >= middle) {
            self.unchecked = None;
            let used = site::congestion_control(self.host, &["src", &self.origin])?;
            if used != wanted {
                bail!("the origin's kernel uses {used}, not {wanted}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_is_that_of_the_second() {
        let second =
            |buffer_s: f64| Screen { buffer_s: Some(buffer_s), psnr_db: None, shown_kbps: None };
        let view = View {
            figures: vec![("stalls", Some(2.0)), ("psnr_db", None)],
            seconds: vec![second(0.0), second(3.0)],
            arrivals: Vec::new(),
            doubts: Vec::new(),
            account: Value::Null,
        };
        assert_eq!(view.screen(-0.1), Screen::default());
        assert_eq!(view.screen(0.9).buffer_s, Some(0.0));
        assert_eq!(view.screen(1.0).buffer_s, Some(3.0));
        assert_eq!(view.screen(2.0), Screen::default());
        let mut figures = Figures::default();
        view.add_to(&mut figures);
        assert_eq!(figures.0.len(), 1);
    }
}
