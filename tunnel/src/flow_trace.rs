//! Traces of the set-up of flows: which steps there were, and how long each took.
//!
//! A trace is begun when a flow is accepted, if it is sampled, and moves with the flow's [`Admission`]. It ends with the
//! first byte from the destination, or with the flow, and goes to a bounded queue, which another thread reads. Without
//! a [`FlowTracer`] nothing is allocated and no clock is read.
//!
//! [`Admission`]: crate::shared::Admission

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use millrace_config::Class;
use millrace_wire::traceparent::TraceParent;
use prometheus::IntCounter;

/// Traces that wait for their export; more are dropped.
pub const MAX_QUEUED_TRACES: usize = 2048;
/// Most steps of one trace; a flow that is offered to several servers has one for each.
pub const MAX_TRACE_STEPS: usize = 16;
/// The failure of a trace whose flow ended before its first byte, in order or for a reason that is not recorded.
const INCOMPLETE: &str = "incomplete";

/// A step in the set-up of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Limits and shares are checked.
    Admission,
    /// At a client: the destination and the class are found.
    Accept,
    /// At a client: a tunnel connection is found, the request sent and answered.
    Tunnel,
    /// The destination's name is resolved.
    Resolve,
    /// The destination is connected to.
    Dial,
    /// The flow waits for the first byte from the destination.
    FirstByte,
}

impl SetupStep {
    /// The name of its span.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Accept => "accept",
            Self::Tunnel => "tunnel",
            Self::Resolve => "resolve",
            Self::Dial => "dial",
            Self::FirstByte => "first byte",
        }
    }
}

/// A step of a trace. Times count from the beginning of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSpan {
    /// Which one.
    pub step: SetupStep,
    /// ID of its span.
    pub span_id: u64,
    /// When it began.
    pub start: Duration,
    /// When it ended.
    pub end: Option<Duration>,
    /// Why it failed.
    pub failure: Option<&'static str>,
}

/// What is known of the set-up of a flow.
#[derive(Clone, Debug)]
pub struct FlowTraceRecord {
    /// ID of the trace.
    pub trace_id: u128,
    /// The client's span, at a server.
    pub parent: Option<u64>,
    /// ID of the span of the whole set-up.
    pub span_id: u64,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub duration: Duration,
    /// The steps in their order, at most [`MAX_TRACE_STEPS`].
    pub steps: Vec<StepSpan>,
    /// Class of the flow.
    pub class: Option<Class>,
    /// Port of the destination.
    pub destination_port: Option<u16>,
    /// Why there was no first byte, in the words of `millrace_flows_finished_total` and `millrace_drops_total`.
    pub failure: Option<&'static str>,
}

/// Begins traces.
#[derive(Debug)]
pub struct FlowTracer {
    sender: SyncSender<Option<Box<FlowTraceRecord>>>,
    /// Traces whose ID is below are sampled, unless the peer has decided.
    threshold: u64,
    dropped: IntCounter,
}

/// The finished traces, in their order; `None` asks the reader to end.
pub type FinishedTraces = Receiver<Option<Box<FlowTraceRecord>>>;

impl FlowTracer {
    /// Records `sampling_ratio` of the flows, 0 to 1, and counts the traces for which the queue has no room.
    pub fn new(sampling_ratio: f64, dropped: IntCounter) -> (Arc<Self>, FinishedTraces) {
        let (sender, receiver) = sync_channel(MAX_QUEUED_TRACES);
        // As TraceIdRatioBased of the OpenTelemetry SDKs: ends with the same ratio choose the same traces.
        let threshold = (sampling_ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
        (Arc::new(Self { sender, threshold, dropped }), receiver)
    }

    /// Begins the trace of a flow, if it is sampled. `parent` is the peer's span, whose decision counts.
    pub fn begin(
        self: &Arc<Self>,
        parent: Option<TraceParent>,
        now: Instant,
    ) -> Option<Box<FlowTrace>> {
        let trace_id = match parent {
            Some(parent) if !parent.sampled => return None,
            Some(parent) => parent.trace_id,
            None => random_id(),
        };
        if parent.is_none() && (trace_id as u64) >> 1 >= self.threshold {
            return None;
        }
        let record = FlowTraceRecord {
            trace_id,
            parent: parent.map(|parent| parent.span_id),
            span_id: random_span_id(),
            began: SystemTime::now(),
            duration: Duration::ZERO,
            steps: Vec::new(),
            class: None,
            destination_port: None,
            failure: Some(INCOMPLETE),
        };
        let mut trace = Box::new(FlowTrace {
            tracer: self.clone(),
            began: now,
            record: Some(Box::new(record)),
        });
        trace.begin(SetupStep::Admission, now);
        Some(trace)
    }

    /// Asks the reader of the finished traces to end. `false` if the queue is full.
    pub fn stop(&self) -> bool {
        self.sender.try_send(None).is_ok()
    }
}

/// The trace of one flow, until it is finished or dropped.
#[derive(Debug)]
pub struct FlowTrace {
    tracer: Arc<FlowTracer>,
    began: Instant,
    /// There until the trace is finished.
    record: Option<Box<FlowTraceRecord>>,
}

impl FlowTrace {
    /// The next step begins, and the one before ends.
    pub fn begin(&mut self, step: SetupStep, now: Instant) {
        self.end_step(None, now);
        let start = self.since_began(now);
        let Some(record) = &mut self.record else { return };
        if record.steps.len() < MAX_TRACE_STEPS {
            let span_id = random_span_id();
            record.steps.push(StepSpan { step, span_id, start, end: None, failure: None });
        }
    }

    /// The current step has failed; another one may follow.
    pub fn fail_step(&mut self, failure: &'static str, now: Instant) {
        self.end_step(Some(failure), now);
    }

    /// The class of the flow and the port of its destination are known.
    pub fn describe(&mut self, class: Class, destination_port: u16) {
        if let Some(record) = &mut self.record {
            (record.class, record.destination_port) = (Some(class), Some(destination_port));
        }
    }

    /// The current step, for the peer: what it does is part of it.
    pub fn parent_for_peer(&self) -> Option<TraceParent> {
        let record = self.record.as_ref()?;
        let span_id = record.steps.last().map_or(record.span_id, |step| step.span_id);
        Some(TraceParent { trace_id: record.trace_id, span_id, sampled: true })
    }

    /// The set-up is over: with the first byte of the destination, or with a failure.
    pub fn finish(&mut self, failure: Option<&'static str>, now: Instant) {
        self.end_step(failure, now);
        let duration = self.since_began(now);
        let Some(mut record) = self.record.take() else { return };
        (record.failure, record.duration) = (failure, duration);
        let spans = record.steps.len() as u64 + 1;
        if self.tracer.sender.try_send(Some(record)).is_err() {
            self.tracer.dropped.inc_by(spans);
        }
    }

    fn end_step(&mut self, failure: Option<&'static str>, now: Instant) {
        let end = self.since_began(now);
        let step = self.record.as_mut().and_then(|record| record.steps.last_mut());
        if let Some(step) = step.filter(|step| step.end.is_none()) {
            (step.end, step.failure) = (Some(end), failure);
        }
    }

    fn since_began(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

impl Drop for FlowTrace {
    fn drop(&mut self) {
        if self.record.is_some() {
            self.finish(Some(INCOMPLETE), Instant::now());
        }
    }
}

fn random_id() -> u128 {
    let mut id = [0; 16];
    boring::rand::rand_bytes(&mut id).expect("BoringSSL's generator does not fail");
    u128::from_ne_bytes(id).max(1)
}

fn random_span_id() -> u64 {
    (random_id() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(ratio: f64) -> (Arc<FlowTracer>, FinishedTraces, IntCounter) {
        let dropped = IntCounter::new("dropped", "Dropped").unwrap();
        let (tracer, finished) = FlowTracer::new(ratio, dropped.clone());
        (tracer, finished, dropped)
    }

    #[test]
    fn steps_follow_each_other_and_the_trace_ends_with_the_first_byte() {
        let (tracer, finished, _) = tracer(1.0);
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut trace = tracer.begin(None, now).unwrap();
        trace.begin(SetupStep::Accept, at(1));
        trace.describe(Class::Dash, 443);
        trace.begin(SetupStep::Tunnel, at(3));
        let parent = trace.parent_for_peer().unwrap();
        trace.fail_step("server_full", at(5));
        trace.begin(SetupStep::Tunnel, at(6));
        trace.begin(SetupStep::FirstByte, at(10));
        trace.finish(None, at(20));
        drop(trace);
        let record = finished.try_recv().unwrap().unwrap();
        assert!(finished.try_recv().is_err());
        let steps: Vec<_> = record
            .steps
            .iter()
            .map(|it| (it.step, it.start.as_millis(), it.end.unwrap().as_millis(), it.failure))
            .collect();
        let expected = [
            (SetupStep::Admission, 0, 1, None),
            (SetupStep::Accept, 1, 3, None),
            (SetupStep::Tunnel, 3, 5, Some("server_full")),
            (SetupStep::Tunnel, 6, 10, None),
            (SetupStep::FirstByte, 10, 20, None),
        ];
        assert_eq!(steps, expected);
        assert_eq!((record.failure, record.duration), (None, Duration::from_millis(20)));
        assert_eq!((record.class, record.destination_port), (Some(Class::Dash), Some(443)));
        assert_eq!((parent.trace_id, parent.span_id), (record.trace_id, record.steps[2].span_id));
    }

    #[test]
    fn peer_decides_what_is_sampled_and_the_ratio_decides_without_one() {
        let now = Instant::now();
        let (none, _finished, _) = tracer(0.0);
        let parent = TraceParent { trace_id: u128::MAX, span_id: 7, sampled: true };
        assert!((0..100).all(|_| none.begin(None, now).is_none()));
        let trace = none.begin(Some(parent), now).unwrap();
        assert_eq!(trace.record.as_ref().unwrap().parent, Some(7));
        let (all, _finished, _) = tracer(1.0);
        assert!((0..100).all(|_| all.begin(None, now).is_some()));
        assert!(all.begin(Some(TraceParent { sampled: false, ..parent }), now).is_none());
        let (half, _finished, _) = tracer(0.5);
        let sampled = (0..1000).filter(|_| half.begin(None, now).is_some()).count();
        assert!((400..600).contains(&sampled), "{sampled}");
    }

    #[test]
    fn full_queue_drops_and_counts_spans() {
        let (tracer, finished, dropped) = tracer(1.0);
        for _ in 0..MAX_QUEUED_TRACES + 3 {
            drop(tracer.begin(None, Instant::now()));
        }
        // The set-up and its first step, each.
        assert_eq!(dropped.get(), 6);
        assert!(!tracer.stop());
        assert_eq!(finished.try_iter().count(), MAX_QUEUED_TRACES);
        assert!(tracer.stop());
    }

    #[test]
    fn steps_are_bounded_and_a_dropped_trace_is_incomplete() {
        let (tracer, finished, _) = tracer(1.0);
        let mut trace = tracer.begin(None, Instant::now()).unwrap();
        for _ in 0..2 * MAX_TRACE_STEPS {
            trace.begin(SetupStep::Tunnel, Instant::now());
        }
        drop(trace);
        let record = finished.try_recv().unwrap().unwrap();
        assert_eq!(record.steps.len(), MAX_TRACE_STEPS);
        assert_eq!(record.failure, Some(INCOMPLETE));
    }
}
