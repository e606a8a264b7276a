//! Lets quiche drive a [`Controller`](crate::Controller); the only file that names quiche.
//!
//! quiche as published offers no way in: `cc/quiche/` holds the patch that opens it.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use quiche::{ExternalCc, ExternalCcFactory, ExternalCongestionControl, ExternalEvent, Lost};

use crate::registry::Algorithm;
use crate::{
    AckedPacket, CongestionEvent, ControllerConfig, Driven, LostPacket, Metrics, PathModel,
    PathStart, RttSample, SentPacket, Time, Tuning,
};

/// How much time lost to a late wake-up the pacer makes up for. With the event
/// loop's release slack it bounds a burst to less than one millisecond of the rate.
pub const PACING_CREDIT: Duration = Duration::from_micros(500);

/// Makes `config` use `algorithm` for the connections opened with it.
///
/// quiche compares factories by address and keeps them as long as it likes, so each
/// distinct setting is leaked once and found again when the same one comes back.
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
    static KNOWN: OnceLock<Mutex<HashMap<String, &'static Factory>>> = OnceLock::new();
    let mut known = KNOWN
        .get_or_init(Mutex::default)
        .lock()
        .expect("no holder of this lock can panic: it only looks up and inserts");
    let make = || &*Box::leak(Box::new(Factory(controller.clone())));
    ExternalCc(*known.entry(algorithm.settings()).or_insert_with(make))
}

/// Lets `algorithm` drive all paths of a living connection from now on, those to come too.
///
/// It takes over what is known of each path, and starts from that instead of from slow start
/// once the path has carried more than an initial window: before, nothing is known of its rate.
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

/// What the controller that drives `connection` says of itself, and what it knows of the path.
///
/// `None` when one of quiche's own algorithms does.
pub fn inspect<F: quiche::BufFactory>(
    connection: &quiche::Connection<F>,
) -> Option<(Metrics, &PathModel)> {
    let driven = driven(connection)?;
    Some((driven.metrics(), driven.path()))
}

/// Asks something of the controller that drives `connection`; whether it does that.
pub fn tune<F: quiche::BufFactory>(connection: &mut quiche::Connection<F>, tuning: Tuning) -> bool {
    let controller = connection.external_cc_mut();
    let adapter: Option<&mut Adapter> = controller.and_then(|it| it.as_any_mut().downcast_mut());
    adapter.is_some_and(|adapter| adapter.driven.tune(tuning))
}

/// The second of these alone, which costs nothing.
pub fn path<F: quiche::BufFactory>(connection: &quiche::Connection<F>) -> Option<&PathModel> {
    driven(connection).map(Driven::path)
}

fn driven<F: quiche::BufFactory>(connection: &quiche::Connection<F>) -> Option<&Driven> {
    let adapter: &Adapter = connection.external_cc()?.as_any().downcast_ref()?;
    Some(&adapter.driven)
}

/// At low rates a packet takes longer than that credit, and a wake-up that is late by less than a
/// packet's time would still cost rate: three quarters of a packet more, and what leaves together
/// is two packets at most. Of a longer time than this no timer is late.
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
            driven: Driven::new(&*self.0, FIRST_MOMENT, start),
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
            driven: former.driven.succeeded_by(&*self.0, now, random_seed()),
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
const FIRST_MOMENT: Time = Time::from_nanos(60 * 1_000_000_000);

#[derive(Debug)]
struct Adapter {
    driven: Driven,
    /// The moment that is [`FIRST_MOMENT`] to the controller.
    epoch: Instant,
    acked: Vec<AckedPacket>,
    lost: Vec<LostPacket>,
    app_limited: bool,
}

impl Adapter {
    fn time(&self, at: Instant) -> Time {
        match at.checked_duration_since(self.epoch) {
            Some(after) => FIRST_MOMENT + after,
            None => {
                let before = self.epoch.duration_since(at).as_nanos() as u64;
                Time::from_nanos(FIRST_MOMENT.as_nanos().saturating_sub(before))
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
        // Otherwise the pause before it would be taken for one of the interval that it begins.
        self.app_limited &= !has_data;
        self.driven.on_packet_sent(&SentPacket {
            number: packet_number,
            time: self.time(now),
            bytes: bytes as u64,
            prior_in_flight_bytes: bytes_in_flight as u64,
            has_data,
        });
    }

    fn on_packet_neutered(&mut self, packet_number: u64) {
        self.driven.on_packet_discarded(packet_number);
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
        self.driven.on_event(&CongestionEvent {
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
        self.driven.on_spurious_loss(self.time(now), &lost);
    }

    fn on_probe_timeout(&mut self) {
        // The patch's hook carries no time; quiche fires it at the moment it is due.
        let now = self.time(Instant::now());
        self.driven.on_probe_timeout(now);
    }

    fn on_app_limited(&mut self, bytes_in_flight: usize) {
        self.app_limited = true;
        let now = self.time(Instant::now());
        self.driven.on_app_limited(now, bytes_in_flight as u64);
    }

    fn on_mtu(&mut self, max_datagram_size: usize) {
        let mtu_bytes = max_datagram_size as u64;
        // quiche also says so when it only looks for a larger one.
        if mtu_bytes != self.driven.mtu_bytes() {
            self.driven.on_mtu(mtu_bytes);
        }
    }

    fn window(&self) -> usize {
        usize::try_from(self.driven.window_bytes()).unwrap_or(usize::MAX)
    }

    fn pacing_rate(&self) -> u64 {
        self.driven.pacing_rate().bytes_per_s()
    }

    fn delivery_rate(&self) -> u64 {
        self.driven.path().delivery_rate.bytes_per_s()
    }

    fn pacing_credit(&self) -> Duration {
        let packet = self.driven.pacing_rate().time_for(self.driven.mtu_bytes());
        PACING_CREDIT.max(packet.min(MAX_PACKET_TIME) * 3 / 4)
    }

    fn state(&self) -> &'static str {
        self.driven.metrics().state
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
