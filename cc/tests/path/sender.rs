use std::collections::BTreeMap;
use std::time::Duration;

use millrace_cc::{
    AckedPacket, CongestionEvent, Controller, LostPacket, RttSample, SentPacket, Time,
};

use super::{MAX_ACK_DELAY, PACKET_BYTES, Record, Source};

/// Packets that may overtake one before it counts as lost (RFC 9002, Section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// As the adapter for quiche allows.
const PACING_CREDIT: Duration = Duration::from_micros(500);

/// A sender with the loss recovery of RFC 9002 and a pacer, around a controller.
pub struct Sender {
    controller: Box<dyn Controller>,
    source: Source,
    started: Time,
    /// When a wake-up is pending.
    pub wake_at: Option<Time>,
    pub record: Record,
    next_number: u64,
    in_flight: BTreeMap<u64, Time>,
    largest_acked: Option<u64>,
    rtt: Option<RttSample>,
    /// Bytes that wait to be sent; lost ones come back here.
    backlog_bytes: u64,
    segment_asked: Option<Time>,
    made_bytes: u64,
    release_at: Time,
    app_limited: bool,
    last_sent: Time,
    probe_timeouts: u32,
    probes: u32,
}

impl Sender {
    pub fn new(controller: Box<dyn Controller>, source: Source, started: Time) -> Self {
        Self {
            controller,
            source,
            started,
            wake_at: None,
            record: Record::default(),
            next_number: 0,
            in_flight: BTreeMap::new(),
            largest_acked: None,
            rtt: None,
            backlog_bytes: 0,
            segment_asked: None,
            made_bytes: 0,
            release_at: started,
            app_limited: false,
            last_sent: started,
            probe_timeouts: 0,
            probes: 0,
        }
    }

    fn in_flight_bytes(&self) -> u64 {
        self.in_flight.len() as u64 * PACKET_BYTES
    }

    fn loss_delay(&self) -> Duration {
        let rtt = self.rtt.map_or(Duration::from_millis(333), |rtt| rtt.smoothed.max(rtt.latest));
        (rtt * 9 / 8).max(Duration::from_millis(1))
    }

    fn probe_delay(&self) -> Duration {
        let (smoothed, variation) =
            self.rtt.map_or((Duration::from_millis(333), Duration::from_millis(166)), |rtt| {
                (rtt.smoothed, rtt.variation)
            });
        let once = smoothed + (variation * 4).max(Duration::from_millis(1)) + MAX_ACK_DELAY;
        once * 2_u32.pow(self.probe_timeouts.min(10))
    }

    /// When the oldest unacknowledged packet counts as lost by time.
    fn loss_time(&self) -> Option<Time> {
        let (number, sent) = self.in_flight.first_key_value()?;
        (*number < self.largest_acked?).then(|| *sent + self.loss_delay())
    }

    /// Timers and the source.
    pub fn on_time(&mut self, now: Time) {
        if self.loss_time().is_some_and(|at| at <= now) {
            self.report(now, &[], None);
        }
        if self.loss_time().is_none()
            && !self.in_flight.is_empty()
            && self.last_sent + self.probe_delay() <= now
        {
            self.probe_timeouts += 1;
            self.probes = 1;
            self.controller.on_probe_timeout(now);
        }
        self.produce(now);
    }

    fn produce(&mut self, now: Time) {
        match self.source {
            Source::Bulk => self.backlog_bytes = self.backlog_bytes.max(1 << 30),
            Source::Constant { rate } => {
                let due = rate.bytes_in(now.since(self.started)) / PACKET_BYTES * PACKET_BYTES;
                self.backlog_bytes += due - self.made_bytes;
                self.made_bytes = due;
            }
            Source::Segments { bytes, period } => {
                if self.backlog_bytes > 0 || !self.in_flight.is_empty() {
                    return;
                }
                if let Some(asked) = self.segment_asked.take() {
                    self.record.segment_s.push(now.since(asked).as_secs_f64());
                }
                let made = self.made_bytes / bytes;
                if now >= self.started + period * made as u32 {
                    self.made_bytes += bytes;
                    self.backlog_bytes += bytes.next_multiple_of(PACKET_BYTES);
                    self.segment_asked = Some(now);
                }
            }
        }
    }

    /// Sends a packet if data, window and pacing let it: its number.
    pub fn send(&mut self, now: Time) -> Option<u64> {
        let probe = self.probes > 0;
        if !probe {
            if self.in_flight_bytes() + PACKET_BYTES > self.controller.window_bytes()
                || now < self.release_at
            {
                return None;
            }
            if self.backlog_bytes == 0 {
                self.app_limited = true;
                self.controller.on_app_limited(now, self.in_flight_bytes());
                return None;
            }
        }
        self.probes = 0;
        self.backlog_bytes = self.backlog_bytes.saturating_sub(PACKET_BYTES);
        let number = self.next_number;
        self.next_number += 1;
        self.controller.on_packet_sent(&SentPacket {
            number,
            time: now,
            bytes: PACKET_BYTES,
            prior_in_flight_bytes: self.in_flight_bytes(),
            has_data: true,
        });
        self.in_flight.insert(number, now);
        self.last_sent = now;
        self.record.sent_packets += 1;
        self.note_rate(now);
        let earliest =
            Time::from_nanos(now.as_nanos().saturating_sub(PACING_CREDIT.as_nanos() as u64));
        self.release_at =
            self.release_at.max(earliest) + self.controller.pacing_rate().time_for(PACKET_BYTES);
        Some(number)
    }

    fn note_rate(&mut self, now: Time) {
        let mbps = self.controller.pacing_rate().mbps();
        let window = self.controller.window_bytes();
        assert!(mbps.is_finite() && mbps > 0.0 && window >= 2 * PACKET_BYTES, "{mbps} {window}");
        if self.record.rates.last().is_none_or(|(_, last)| *last != mbps) {
            self.record.rates.push((now, mbps));
        }
    }

    /// When something may be due next.
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        let room = self.in_flight_bytes() + PACKET_BYTES <= self.controller.window_bytes();
        let release = (room && self.backlog_bytes > 0).then_some(self.release_at);
        let loss = self.loss_time();
        let probe = (loss.is_none() && !self.in_flight.is_empty())
            .then(|| self.last_sent + self.probe_delay());
        let source = match self.source {
            Source::Bulk => None,
            Source::Constant { rate } => {
                Some(self.started + rate.time_for(self.made_bytes + PACKET_BYTES))
            }
            Source::Segments { bytes, period } => {
                let next = self.started + period * (self.made_bytes / bytes) as u32;
                (self.backlog_bytes == 0 && self.in_flight.is_empty()).then_some(next)
            }
        };
        let soonest = [release, loss, probe, source].into_iter().flatten().min()?;
        Some(soonest.max(now + Duration::from_nanos(1)))
    }

    pub fn on_ack(&mut self, now: Time, numbers: &[u64]) {
        let mut acked = Vec::new();
        for number in numbers {
            if let Some(sent) = self.in_flight.remove(number) {
                acked.push(AckedPacket { number: *number, sent, bytes: PACKET_BYTES });
            }
        }
        let Some(largest) = acked.last() else { return };
        let newer = self.largest_acked.is_none_or(|before| largest.number > before);
        let sample = newer.then(|| self.sample(now.since(largest.sent)));
        self.largest_acked = self.largest_acked.max(Some(largest.number));
        self.probe_timeouts = 0;
        self.report(now, &acked, sample);
    }

    /// RFC 9002, Section 5.3.
    fn sample(&mut self, latest: Duration) -> RttSample {
        let next = match self.rtt {
            None => RttSample { latest, smoothed: latest, variation: latest / 2, min: latest },
            Some(RttSample { smoothed, variation, min, .. }) => RttSample {
                latest,
                smoothed: (smoothed * 7 + latest) / 8,
                variation: (variation * 3 + smoothed.abs_diff(latest)) / 4,
                min: min.min(latest),
            },
        };
        self.rtt = Some(next);
        next
    }

    fn report(&mut self, now: Time, acked: &[AckedPacket], rtt: Option<RttSample>) {
        let after = self.in_flight_bytes();
        let mut lost = Vec::new();
        if let Some(largest) = self.largest_acked {
            let delay = self.loss_delay();
            for (number, sent) in self.in_flight.range(..largest) {
                if largest >= number + PACKET_THRESHOLD || *sent + delay <= now {
                    lost.push(LostPacket { number: *number, sent: *sent, bytes: PACKET_BYTES });
                }
            }
        }
        for packet in &lost {
            self.in_flight.remove(&packet.number);
            self.backlog_bytes += PACKET_BYTES;
        }
        self.record.lost_packets += lost.len() as u64;
        self.controller.on_event(&CongestionEvent {
            now,
            acked,
            lost: &lost,
            rtt,
            ecn_ce: 0,
            prior_in_flight_bytes: after + acked.len() as u64 * PACKET_BYTES,
            in_flight_bytes: self.in_flight_bytes(),
            app_limited: std::mem::take(&mut self.app_limited),
        });
    }
}
