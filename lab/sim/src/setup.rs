use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use millrace_cc::{Bandwidth, ControllerConfig, Tuning};

use crate::setup_checks::{SetupError, check, check_buffer, check_delay, check_loss, check_rate};
use crate::{DataSource, RateTrace};

/// Bytes of a packet that are not UDP payload: the headers of IPv6 and UDP.
pub const HEADER_BYTES: u64 = 48;

/// One run: a bottleneck, its changes, and the flows that share it. All times are counted from the
/// start of the run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Initial state of the bottleneck.
    pub link: LinkSetup,
    /// Changes of the bottleneck, and when. Of changes at the same time the later in the list wins.
    pub changes: Vec<(Duration, LinkChange)>,
    /// Random values that are drawn periodically.
    pub random_change: Option<RandomLinkChange>,
    /// The senders with their receivers.
    pub flows: Vec<FlowSetup>,
    /// Length of the run.
    pub duration: Duration,
    /// Time at its start that does not count in the totals.
    pub warmup: Duration,
    /// Seed of all random values. Loss, jitter, random changes and each controller draw from their own
    /// generators, so the link does not depend on the algorithms: runs of different algorithms with the
    /// same seed have the same random changes.
    pub seed: u64,
    /// Time between samples for the observer.
    pub sample_every: Duration,
}

impl Setup {
    /// `flows` over `link`: no changes, no warm-up, seed 1, a sample each 100 ms.
    #[must_use]
    pub fn new(link: LinkSetup, flows: Vec<FlowSetup>, duration: Duration) -> Self {
        Self {
            link,
            changes: Vec::new(),
            random_change: None,
            flows,
            duration,
            warmup: Duration::ZERO,
            seed: 1,
            sample_every: Duration::from_millis(100),
        }
    }
}

/// Rate of the bottleneck.
#[derive(Clone, Debug)]
pub enum LinkRate {
    /// A constant rate, in bytes of the network layer.
    Constant(Bandwidth),
    /// A recorded rate, repeated; it starts when it comes into force.
    Trace(Arc<RateTrace>),
}

/// The bottleneck, in the direction of the data.
#[derive(Clone, Debug)]
pub struct LinkSetup {
    /// Its rate.
    pub rate: LinkRate,
    /// Propagation, both directions together; half of it is behind the queue, half on the return path.
    pub rtt: Duration,
    /// Bytes that may wait. The packet being serialised has left the buffer.
    pub buffer_bytes: u64,
    /// Probability that a data packet is lost before the queue, independent of all others.
    pub loss: f64,
    /// Probability that an acknowledgement is lost, independent of all others.
    pub loss_reverse: f64,
    /// Largest additional delay of a data packet, evenly distributed.
    pub jitter: Duration,
    /// Whether jitter may change the order of packets; otherwise a packet waits for those before it.
    pub reorder: bool,
}

impl LinkSetup {
    /// A link with a constant rate, without loss or jitter.
    #[must_use]
    pub fn new(rate: Bandwidth, rtt: Duration, buffer_bytes: u64) -> Self {
        Self {
            rate: LinkRate::Constant(rate),
            rtt,
            buffer_bytes,
            loss: 0.0,
            loss_reverse: 0.0,
            jitter: Duration::ZERO,
            reorder: false,
        }
    }
}

/// A change of the link; `None` keeps the value. Packets in flight keep their arrival times, and
/// none overtakes another.
#[derive(Clone, Debug, Default)]
pub struct LinkChange {
    /// New [`LinkSetup::rate`].
    pub rate: Option<LinkRate>,
    /// New [`LinkSetup::rtt`].
    pub rtt: Option<Duration>,
    /// New [`LinkSetup::buffer_bytes`].
    pub buffer_bytes: Option<u64>,
    /// New [`LinkSetup::loss`].
    pub loss: Option<f64>,
    /// New [`LinkSetup::loss_reverse`].
    pub loss_reverse: Option<f64>,
    /// New [`LinkSetup::jitter`].
    pub jitter: Option<Duration>,
}

/// Values drawn evenly from ranges, at the start of the run and then periodically. Values without a
/// range keep the link's.
#[derive(Clone, Debug)]
pub struct RandomLinkChange {
    /// Time between draws.
    pub every: Duration,
    /// Range of constant rates.
    pub rate: Option<RangeInclusive<Bandwidth>>,
    /// Range of [`LinkSetup::rtt`].
    pub rtt: Option<RangeInclusive<Duration>>,
    /// Range of [`LinkSetup::loss`].
    pub loss: Option<RangeInclusive<f64>>,
}

/// A sender and its receiver.
#[derive(Clone, Debug)]
pub struct FlowSetup {
    /// Its congestion control.
    pub algorithm: Arc<dyn ControllerConfig>,
    /// Its data.
    pub source: DataSource,
    /// When it starts.
    pub start: Duration,
    /// When it stops sending; packets in flight still arrive. `None` is the end of the run.
    pub stop: Option<Duration>,
    /// Additional propagation of this flow, both directions together.
    pub extra_rtt: Duration,
    /// Whether the server edge caps its rate at what its player can use (`millrace_cc::rate_cap`).
    pub caps_player_rate: bool,
    /// Changes to its controller while it runs, and when.
    pub orders: Vec<(Duration, Order)>,
    /// How its receiver acknowledges.
    pub ack: AckPolicy,
    /// Size of a full packet of the network layer; the controller's MTU is [`HEADER_BYTES`] less.
    pub packet_bytes: u64,
    /// Window before the first acknowledgement (RFC 9002, Section 7.2: 10).
    pub initial_window_packets: u64,
}

impl FlowSetup {
    /// A flow that always has data, from the start of the run to its end.
    #[must_use]
    pub fn bulk(algorithm: Arc<dyn ControllerConfig>) -> Self {
        Self {
            algorithm,
            source: DataSource::Bulk,
            start: Duration::ZERO,
            stop: None,
            extra_rtt: Duration::ZERO,
            caps_player_rate: false,
            orders: Vec::new(),
            ack: AckPolicy::default(),
            packet_bytes: 1500,
            initial_window_packets: 10,
        }
    }
}

/// A change to a flow's controller while the flow runs.
#[derive(Clone, Debug)]
pub enum Order {
    /// Changes the controller's objective.
    Tune(Tuning),
    /// Replaces the controller by one of this algorithm (warm start).
    Migrate(Arc<dyn ControllerConfig>),
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// After this many packets (RFC 9000, Section 13.2.2: 2).
    pub every: u32,
    /// Or after this time (RFC 9000, Section 18.2: 25 ms).
    pub max_delay: Duration,
    /// The return path holds acknowledgements and releases them together at multiples of this, as a
    /// shared radio link does; zero disables it.
    pub aggregation: Duration,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self { every: 2, max_delay: Duration::from_millis(25), aggregation: Duration::ZERO }
    }
}

const MAX_DURATION: Duration = Duration::from_secs(1_000_000);
const MAX_FLOWS: usize = 10_000;

fn check_link_rate(what: &str, rate: &LinkRate) -> Result<(), SetupError> {
    match rate {
        LinkRate::Constant(rate) => check_rate(what, *rate),
        LinkRate::Trace(_) => Ok(()),
    }
}

impl Setup {
    /// Checks every value.
    ///
    /// # Errors
    /// Names the first value that is out of range, and the range.
    pub fn validate(&self) -> Result<(), SetupError> {
        self.validate_without_flows()?;
        check((1..=MAX_FLOWS).contains(&self.flows.len()), || {
            format!("{} flows; allowed are 1 to {MAX_FLOWS}", self.flows.len())
        })?;
        for (index, flow) in self.flows.iter().enumerate() {
            flow.validate(&format!("flow {index}"))?;
        }
        Ok(())
    }

    /// Checks the bottleneck, its changes, and the times: everything but the flows.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn validate_without_flows(&self) -> Result<(), SetupError> {
        check(!self.duration.is_zero() && self.duration <= MAX_DURATION, || {
            format!("duration of {:?}; allowed are up to 1000000 s", self.duration)
        })?;
        check(self.warmup < self.duration, || "warmup leaves nothing of the run".to_owned())?;
        check(self.sample_every >= Duration::from_micros(100), || {
            format!("a sample each {:?}; allowed are 100 us and more", self.sample_every)
        })?;
        self.link.validate()?;
        for (index, (_, change)) in self.changes.iter().enumerate() {
            change.validate(&format!("change {index}"))?;
        }
        if let Some(change) = &self.random_change {
            change.validate()?;
        }
        Ok(())
    }
}

impl LinkSetup {
    fn validate(&self) -> Result<(), SetupError> {
        check_link_rate("link", &self.rate)?;
        check_delay("link", "rtt", self.rtt)?;
        check_buffer("link", self.buffer_bytes)?;
        check_loss("link", self.loss)?;
        check_loss("link, reverse", self.loss_reverse)?;
        check_delay("link", "jitter", self.jitter)
    }
}

impl LinkChange {
    fn validate(&self, what: &str) -> Result<(), SetupError> {
        if let Some(rate) = &self.rate {
            check_link_rate(what, rate)?;
        }
        check_delay(what, "rtt", self.rtt.unwrap_or_default())?;
        check_buffer(what, self.buffer_bytes.unwrap_or_default())?;
        check_loss(what, self.loss.unwrap_or_default())?;
        check_loss(what, self.loss_reverse.unwrap_or_default())?;
        check_delay(what, "jitter", self.jitter.unwrap_or_default())
    }
}

fn check_range<T: PartialOrd>(
    range: Option<&RangeInclusive<T>>,
    value: impl Fn(&T) -> Result<(), SetupError>,
) -> Result<(), SetupError> {
    let Some(range) = range else { return Ok(()) };
    value(range.start())?;
    value(range.end())?;
    check(range.start() <= range.end(), || "random change: a range ends below its start".to_owned())
}

impl RandomLinkChange {
    fn validate(&self) -> Result<(), SetupError> {
        let what = "random change";
        check(self.every >= Duration::from_millis(1), || {
            format!("{what} each {:?}; allowed are 1 ms and more", self.every)
        })?;
        check_range(self.rate.as_ref(), |rate| check_rate(what, *rate))?;
        check_range(self.rtt.as_ref(), |rtt| check_delay(what, "rtt", *rtt))?;
        check_range(self.loss.as_ref(), |loss| check_loss(what, *loss))
    }
}

impl FlowSetup {
    fn validate(&self, what: &str) -> Result<(), SetupError> {
        check((HEADER_BYTES + 100..=65_535).contains(&self.packet_bytes), || {
            format!("{what}: packets of {} bytes; allowed are 148 to 65535", self.packet_bytes)
        })?;
        check((1..=10_000).contains(&self.initial_window_packets), || {
            format!("{what}: initial window of {} packets", self.initial_window_packets)
        })?;
        check(self.stop.is_none_or(|stop| stop >= self.start), || {
            format!("{what}: stops before it starts")
        })?;
        check_delay(what, "extra rtt", self.extra_rtt)?;
        check(self.ack.every >= 1, || format!("{what}: an acknowledgement after 0 packets"))?;
        check_delay(what, "acknowledgement delay", self.ack.max_delay)?;
        check_delay(what, "acknowledgement aggregation", self.ack.aggregation)?;
        self.source.validate(what)
    }
}
