//! Shared parts of the tests.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::{Bandwidth, ConstantConfig, ControllerConfig, Time};
use millrace_sim::{
    FlowSample, FlowSetup, HEADER_BYTES, LinkSample, LinkSetup, NoObserver, Observer, SegmentDone,
    Setup, SimulationOutcome, run,
};

/// Sends `mbps` in packets of 1500 bytes of the network layer.
pub fn constant(mbps: f64) -> Arc<dyn ControllerConfig> {
    let payload = (1500 - HEADER_BYTES) as f64 / 1500.0;
    Arc::new(ConstantConfig::new(Bandwidth::from_mbps(mbps * payload)))
}

pub fn link(mbps: f64, rtt_ms: u64, buffer_bytes: u64) -> LinkSetup {
    LinkSetup::new(Bandwidth::from_mbps(mbps), Duration::from_millis(rtt_ms), buffer_bytes)
}

/// 12 Mbit/s, on which a packet takes 1 ms; 100 ms; a buffer of 100 packets.
pub fn demo() -> LinkSetup {
    link(12.0, 100, 150_000)
}

pub fn setup(link: LinkSetup, flows: Vec<FlowSetup>, seconds: u64) -> Setup {
    Setup::new(link, flows, Duration::from_secs(seconds))
}

pub fn outcome(setup: &Setup) -> SimulationOutcome {
    run(setup, &mut NoObserver).expect("a setup that can be run")
}

/// Keeps everything.
#[derive(Debug, Default)]
pub struct Log {
    pub samples: Vec<(Time, LinkSample, Vec<FlowSample>)>,
    pub segments: Vec<SegmentDone>,
}

impl Observer for Log {
    fn sample(&mut self, at: Time, link: &LinkSample, flows: &[FlowSample]) {
        self.samples.push((at, *link, flows.to_vec()));
    }

    fn segment(&mut self, segment: &SegmentDone) {
        self.segments.push(*segment);
    }
}

pub fn logged(setup: &Setup) -> (SimulationOutcome, Log) {
    let mut log = Log::default();
    let outcome = run(setup, &mut log).expect("a setup that can be run");
    (outcome, log)
}

/// Every algorithm of the library that responds to the path.
pub fn algorithms() -> Vec<Arc<dyn ControllerConfig>> {
    let mut all = millrace_replay::algorithms();
    all.retain(|algorithm| algorithm.name() != "constant");
    all
}

impl Log {
    /// The first flow's goodput between two times, as a share of the goodput of full packets on a link
    /// of `mbps`.
    pub fn share(&self, mbps: f64, from_s: f64, to_s: f64) -> f64 {
        let inside = |at: &Time| at.as_secs_f64() > from_s + 1e-6 && at.as_secs_f64() < to_s + 1e-6;
        let samples = self.samples.iter().filter(|(at, ..)| inside(at));
        let goodput: Vec<_> = samples.map(|(_, _, flows)| flows[0].goodput.mbps()).collect();
        let payload = (1500 - HEADER_BYTES) as f64 / 1500.0;
        goodput.iter().sum::<f64>() / goodput.len().max(1) as f64 / payload / mbps
    }

    /// Seconds from `from_s` to the first second that carries four fifths of `mbps`.
    pub fn reached_s(&self, mbps: f64, from_s: f64) -> f64 {
        let end_s = self.samples.last().map_or(0.0, |(at, ..)| at.as_secs_f64());
        let tenths = (0_u32..).map(|tenth| f64::from(tenth) / 10.0);
        let mut later = tenths.take_while(|later| from_s + later + 1.0 < end_s);
        let reached = |later: &f64| self.share(mbps, from_s + later, from_s + later + 1.0) > 0.8;
        later.find(reached).unwrap_or(f64::INFINITY)
    }
}
