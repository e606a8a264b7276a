//! The controller of a flow: passes events to a program and keeps its last decision.

use std::sync::atomic::Ordering;

use millrace_cc::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, LostPacket,
    PathStart, SentPacket, Time,
};

use super::config::{ExternalConfig, ExternalFailure};
use super::exchange::ExternalProcess;
use super::protocol::{ExternalDecision, ExternalMessage, PROTOCOL_VERSION};

impl ControllerConfig for ExternalConfig {
    fn name(&self) -> &'static str {
        "external"
    }

    /// The simulator builds the controllers of all flows before a run, in their order.
    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller> {
        let flow = self.started.fetch_add(1, Ordering::Relaxed);
        Box::new(ExternalController::start(self, flow, now, start))
    }
}

/// A controller whose decisions are a program's.
#[derive(Debug)]
struct ExternalController {
    /// Name and flow, for errors.
    name: String,
    /// `None` after a failure.
    process: Option<ExternalProcess>,
    decision: ExternalDecision,
    /// Since the last event.
    sent_packets: u64,
    sent_bytes: u64,
    failure: ExternalFailure,
}

impl ExternalController {
    fn start(config: &ExternalConfig, flow: usize, now: Time, start: &PathStart) -> Self {
        let name = format!("{}, its flow {flow}", config.name);
        let kind = config.name.replace(':', "-");
        let log = config.log_directory.join(format!("{kind}-{flow}.log"));
        let (command, directory) = (&config.command, &config.program_directory);
        let process = ExternalProcess::start(command, directory, log, config.timeout);
        let mut controller = Self {
            name,
            process: None,
            decision: STOPPED,
            sent_packets: 0,
            sent_bytes: 0,
            failure: ExternalFailure::clone(&config.failure),
        };
        match process {
            Ok(process) => controller.process = Some(process),
            Err(problem) => controller.fail(now, &problem),
        }
        controller.ask(
            now,
            &ExternalMessage::Start {
                protocol: PROTOCOL_VERSION,
                flow,
                now_ns: now.as_nanos(),
                mtu_bytes: start.mtu_bytes,
                initial_window_bytes: start.initial_window_bytes,
                // The initial round trip is a fraction of a second.
                initial_rtt_ns: start.initial_rtt.as_nanos() as u64,
                seed: start.seed,
                parameters: &config.parameters,
            },
        );
        controller
    }

    fn ask(&mut self, now: Time, message: &ExternalMessage<'_>) {
        let Some(process) = &mut self.process else { return };
        match process.ask(message) {
            Ok(decision) => self.decision = decision,
            Err(problem) => self.fail(now, &problem),
        }
    }

    /// Ends the program, and with it the run. Nothing more is sent until the run has ended.
    fn fail(&mut self, now: Time, problem: &str) {
        let (name, at_s) = (&self.name, now.as_secs_f64());
        // The first failure of a run is its reason.
        self.failure.set(format!("{name}, at {at_s:.6} s: {problem}")).ok();
        self.process = None;
        self.decision = STOPPED;
    }
}

/// Of a program that failed.
const STOPPED: ExternalDecision =
    ExternalDecision { window_bytes: 0, pacing_rate: Bandwidth::from_bits_per_s(1_000) };

impl Controller for ExternalController {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        self.sent_packets += 1;
        self.sent_bytes += packet.bytes;
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        let message = ExternalMessage::Event {
            now_ns: event.now.as_nanos(),
            acked: event.acked,
            lost: event.lost,
            rtt: event.rtt.map(Into::into),
            ecn_ce: event.ecn_ce,
            prior_in_flight_bytes: event.prior_in_flight_bytes,
            in_flight_bytes: event.in_flight_bytes,
            app_limited: event.app_limited,
            sent_packets: std::mem::take(&mut self.sent_packets),
            sent_bytes: std::mem::take(&mut self.sent_bytes),
        };
        self.ask(event.now, &message);
    }

    fn on_probe_timeout(&mut self, now: Time) {
        self.ask(now, &ExternalMessage::ProbeTimeout { now_ns: now.as_nanos() });
    }

    fn on_spurious_loss(&mut self, now: Time, packet: &LostPacket) {
        let packet = (packet.number, packet.sent.as_nanos(), packet.bytes);
        self.ask(now, &ExternalMessage::SpuriousLoss { now_ns: now.as_nanos(), packet });
    }

    fn window_bytes(&self) -> u64 {
        self.decision.window_bytes
    }

    fn pacing_rate(&self) -> Bandwidth {
        self.decision.pacing_rate
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics {
            state: "external",
            pacing_rate: self.decision.pacing_rate,
            window_bytes: self.decision.window_bytes,
            figures: Vec::new(),
        }
    }
}
