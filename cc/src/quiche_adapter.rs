//! Lets quiche drive a [`Controller`](crate::Controller); the only file that names quiche.
//!
//! quiche as published offers no way in: `third_party/quiche/` holds the patches that add the interface.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use quiche::{ExternalCc, ExternalCcFactory, ExternalCongestionControl, ExternalEvent, Lost};

use crate::registry::Algorithm;
use crate::{
    AckedPacket, CongestionEvent, ControllerConfig, ControllerMetrics, LostPacket, PathController,
    PathModel, PathStart, RttSample, SentPacket, Time, Tuning,
};

/// Time lost to a late wake-up that the pacer makes up for. Together with the event
/// loop's pacing lead it bounds a burst to less than one millisecond of the rate.
pub const PACING_CREDIT: Duration = Duration::from_micros(500);

/// Makes `config` use `algorithm` for the connections opened with it.
///
/// quiche compares factories by address and may keep them for the life of the process, so each
/// distinct setting is leaked once and reused.
///
/// # Errors
/// When quiche does not know one of its own algorithms by the name that we use.
pub fn apply(config: &mut quiche::Config, algorithm: &Algorithm) -> Result<(), quiche::Error> {
    match algorithm {
        Algorithm::Transport { quiche_name, .. } => {
            config.set_external_cc(None);
            config.set_cc_algorithm_name(quiche_name)
        }
        Algorithm::Controller(controller) => {
            config.set_external_cc(Some(factory(algorithm, controller)));
            Ok(())
        }
    }
}

fn factory(algorithm: &Algorithm, controller: &Arc<dyn ControllerConfig>) -> ExternalCc {
    static FACTORIES: OnceLock<Mutex<HashMap<String, &'static Factory>>> = OnceLock::new();
    let mut factories = FACTORIES
        .get_or_init(Mutex::default)
        .lock()
        .expect("no holder of this lock can panic: it only looks up and inserts");
    let make = || &*Box::leak(Box::new(Factory(controller.clone())));
    ExternalCc(*factories.entry(algorithm.settings()).or_insert_with(make))
}

/// Replaces the controllers of all paths of a live connection, and those of its future paths, by `algorithm`.
///
/// Each path is handed off with its path model: a warm start instead of slow start, once the path has
/// carried more than an initial window. Before that its rate is unknown.
///
/// # Errors
/// `CongestionControl` when the connection began with an algorithm that is neither one of this
/// crate nor BBRv2, or when `algorithm` is none of these.
pub fn replace<F: quiche::BufFactory>(
    connection: &mut quiche::Connection<F>,
    algorithm: &Algorithm,
) -> Result<(), quiche::Error> {
    match algorithm {
        Algorithm::Transport { quiche_name: "bbr2_gcongestion", .. } => {
            connection.replace_external_cc(None)
        }
        Algorithm::Transport { .. } => Err(quiche::Error::CongestionControl),
        Algorithm::Controller(controller) => {
            connection.replace_external_cc(Some(factory(algorithm, controller)))
        }
    }
}

/// Metrics of the controller of `connection`, and its path model.
///
/// `None` when one of quiche's own algorithms is in use.
pub fn inspect<F: quiche::BufFactory>(
    connection: &quiche::Connection<F>,
) -> Option<(ControllerMetrics, &PathModel)> {
    let controller = path_controller(connection)?;
    Some((controller.metrics(), controller.path()))
}

/// Changes the objective of the controller of `connection`. Returns whether its algorithm supports that.
pub fn tune<F: quiche::BufFactory>(connection: &mut quiche::Connection<F>, tuning: Tuning) -> bool {
    let external = connection.external_cc_mut();
    let adapter: Option<&mut Adapter> = external.and_then(|it| it.as_any_mut().downcast_mut());
    adapter.is_some_and(|adapter| adapter.controller.tune(tuning))
}

/// The path model of `connection`, without the cost of [`inspect`]'s metrics.
///
/// `None` when one of quiche's own algorithms is in use.
pub fn path<F: quiche::BufFactory>(connection: &quiche::Connection<F>) -> Option<&PathModel> {
    path_controller(connection).map(PathController::path)
}

fn path_controller<F: quiche::BufFactory>(
    connection: &quiche::Connection<F>,
) -> Option<&PathController> {
    let adapter: &Adapter = connection.external_cc()?.as_any().downcast_ref()?;
    Some(&adapter.controller)
}

/// Longest packet time for which the pacing credit is three quarters of a packet instead of [`PACING_CREDIT`]; no timer
/// is later than this. At low rates a packet takes longer than [`PACING_CREDIT`], and a wake-up that is late by less
/// than a packet's time would cost rate. At most two packets leave together.
const MAX_PACKET_TIME: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Factory(Arc<dyn ControllerConfig>);

impl ExternalCcFactory for Factory {
    fn make(
        &self,
        max_datagram_size: usize,
        initial_window: usize,
        initial_rtt: Duration,
    ) -> Box<dyn ExternalCongestionControl> {
        let start = PathStart {
            mtu_bytes: max_datagram_size as u64,
            initial_window_bytes: initial_window as u64,
            initial_rtt,
            seed: random_seed(),
        };
        Box::new(Adapter {
            controller: PathController::new(&*self.0, EPOCH_OFFSET, start),
            epoch: Instant::now(),
            acked: Vec::new(),
            lost: Vec::new(),
            app_limited: false,
        })
    }

    fn succeed(
        &self,
        former: &mut dyn ExternalCongestionControl,
        now: Instant,
    ) -> Box<dyn ExternalCongestionControl> {
        let former: &mut Adapter =
            former.as_any_mut().downcast_mut().expect("no other type implements the trait");
        let now = former.time(now);
        Box::new(Adapter {
            controller: former.controller.replace_with(&*self.0, now, random_seed()),
            epoch: former.epoch,
            acked: std::mem::take(&mut former.acked),
            lost: std::mem::take(&mut former.lost),
            app_limited: former.app_limited,
        })
    }
}

fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    boring::rand::rand_bytes(&mut bytes).expect("BoringSSL's generator does not fail");
    u64::from_ne_bytes(bytes)
}

/// quiche hands out moments from before the controller was made (a packet sent on
/// the same path under an earlier configuration), so its epoch lies a little ahead.
const EPOCH_OFFSET: Time = Time::from_nanos(60 * 1_000_000_000);

#[derive(Debug)]
struct Adapter {
    controller: PathController,
    /// The moment that is [`EPOCH_OFFSET`] to the controller.
    epoch: Instant,
    acked: Vec<AckedPacket>,
    lost: Vec<LostPacket>,
    app_limited: bool,
}

impl Adapter {
    fn time(&self, at: Instant) -> Time {
        match at.checked_duration_since(self.epoch) {
            Some(after) => EPOCH_OFFSET + after,
            None => {
                let before = self.epoch.duration_since(at).as_nanos() as u64;
                Time::from_nanos(EPOCH_OFFSET.as_nanos().saturating_sub(before))
            }
        }
    }

    fn lost_packet(&self, packet: &Lost) -> LostPacket {
        LostPacket {
            number: packet.packet_number,
            sent: self.time(packet.time_sent),
            bytes: packet.bytes_lost as u64,
        }
    }
}

impl ExternalCongestionControl for Adapter {
    fn on_packet_sent(
        &mut self,
        now: Instant,
        bytes_in_flight: usize,
        packet_number: u64,
        bytes: usize,
        has_data: bool,
    ) {
        // Otherwise the pause before the packet would count as part of the interval that the packet starts.
        self.app_limited &= !has_data;
        self.controller.on_packet_sent(&SentPacket {
            number: packet_number,
            time: self.time(now),
            bytes: bytes as u64,
            prior_in_flight_bytes: bytes_in_flight as u64,
            has_data,
        });
    }

    fn on_packet_neutered(&mut self, packet_number: u64) {
        self.controller.on_packet_discarded(packet_number);
    }

    fn on_event(&mut self, event: &ExternalEvent<'_>) {
        let mut acked = std::mem::take(&mut self.acked);
        let mut lost = std::mem::take(&mut self.lost);
        acked.clear();
        lost.clear();
        acked.extend(event.acked.iter().map(|packet| AckedPacket {
            number: packet.pkt_num,
            sent: self.time(packet.time_sent),
            bytes: packet.sent_bytes as u64,
        }));
        lost.extend(event.lost.iter().map(|packet| self.lost_packet(packet)));
        self.controller.on_event(&CongestionEvent {
            now: self.time(event.now),
            acked: &acked,
            lost: &lost,
            rtt: event.rtt_updated.then(|| RttSample {
                latest: event.latest_rtt,
                smoothed: event.smoothed_rtt,
                variation: event.rttvar,
                min: event.min_rtt.unwrap_or(event.latest_rtt),
            }),
            // quiche 0.30 neither sets nor reads ECN (RFC 9000, Section 13.4).
            ecn_ce: 0,
            prior_in_flight_bytes: event.prior_in_flight as u64,
            in_flight_bytes: event.bytes_in_flight as u64,
            app_limited: self.app_limited,
        });
        self.acked = acked;
        self.lost = lost;
    }

    fn on_spurious_loss(&mut self, now: Instant, packet: &Lost) {
        let lost = self.lost_packet(packet);
        self.controller.on_spurious_loss(self.time(now), &lost);
    }

    fn on_probe_timeout(&mut self) {
        // The patch's hook carries no time; quiche fires it at the moment it is due.
        let now = self.time(Instant::now());
        self.controller.on_probe_timeout(now);
    }

    fn on_app_limited(&mut self, bytes_in_flight: usize) {
        self.app_limited = true;
        let now = self.time(Instant::now());
        self.controller.on_app_limited(now, bytes_in_flight as u64);
    }

    fn on_mtu(&mut self, max_datagram_size: usize) {
        let mtu_bytes = max_datagram_size as u64;
        // quiche also calls this while it only searches for a larger MTU.
        if mtu_bytes != self.controller.mtu_bytes() {
            self.controller.on_mtu(mtu_bytes);
        }
    }

    fn window(&self) -> usize {
        usize::try_from(self.controller.window_bytes()).unwrap_or(usize::MAX)
    }

    fn pacing_rate(&self) -> u64 {
        self.controller.pacing_rate().bytes_per_s()
    }

    fn delivery_rate(&self) -> u64 {
        self.controller.path().delivery_rate.bytes_per_s()
    }

    fn pacing_credit(&self) -> Duration {
        let packet = self.controller.pacing_rate().time_for(self.controller.mtu_bytes());
        PACING_CREDIT.max(packet.min(MAX_PACKET_TIME) * 3 / 4)
    }

    fn state(&self) -> &'static str {
        self.controller.metrics().state
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
