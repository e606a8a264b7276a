//! Acknowledgements, RTT samples and loss detection (RFC 9002, Sections 5 and 6).

use std::time::Duration;

use millrace_cc::{AckedPacket, CongestionEvent, LostPacket, RttSample, Time};

use super::{InFlightPacket, PacketState, SimulatedSender};
use crate::receiver::Ack;

/// Largest packet threshold after losses that turned out to be reordering (as in quiche, which the tunnel
/// uses).
const MAX_PACKET_THRESHOLD: u64 = 20;
/// Time threshold after a spurious loss, in eighths of the RTT (quiche: 5/4).
const REORDERED_TIME_THRESHOLD_EIGHTHS: u64 = 10;
/// Probe timeouts for which a lost packet is remembered, in case it was only late.
const LOST_MEMORY_TIMEOUTS: u64 = 4;

impl SimulatedSender {
    /// Processes an acknowledgement that reports the packets `numbers` first.
    pub(crate) fn on_ack(&mut self, now: Time, ack: &Ack, numbers: impl Iterator<Item = u64>) {
        self.acked.clear();
        let prior_in_flight_bytes = self.in_flight_bytes;
        let mut ordered = true;
        let mut largest_sent = None;
        for number in numbers {
            let Some(index) = number.checked_sub(self.base) else { continue };
            let Some(&sent) = self.ring.get(index as usize) else { continue };
            match sent.state {
                PacketState::Done => continue,
                PacketState::Lost => self.on_late(now, number, &sent),
                PacketState::InFlight => {
                    self.in_flight_bytes -= u64::from(sent.bytes);
                    self.in_flight_packets -= 1;
                    if number == ack.largest {
                        largest_sent = Some(sent.at);
                    }
                    ordered &= self.acked.last().is_none_or(|last| last.number < number);
                    self.acked.push(AckedPacket {
                        number,
                        sent: sent.at,
                        bytes: u64::from(sent.bytes),
                    });
                }
            }
            self.ring[index as usize].state = PacketState::Done;
        }
        if self.acked.is_empty() {
            return;
        }
        if !ordered {
            self.acked.sort_unstable_by_key(|packet| packet.number);
        }
        self.timeouts = 0;
        self.largest_acked = self.largest_acked.max(Some(ack.largest));
        let sample = largest_sent.map(|sent| self.sample_rtt(now, sent, ack.delay_ns));
        self.detect_losses(now);
        self.report(now, sample, prior_in_flight_bytes);
        self.forget(now);
    }

    fn sample_rtt(&mut self, now: Time, sent: Time, ack_delay_ns: u64) -> RttSample {
        let latest_ns = (now - sent).as_nanos() as u64;
        self.counts.rtt_samples += 1;
        self.counts.rtt_sum_ns += latest_ns;
        self.rtt.sample(latest_ns, ack_delay_ns.min(self.max_ack_delay_ns))
    }

    /// A packet that was declared lost has arrived: its data is not sent again, and the thresholds grow.
    fn on_late(&mut self, now: Time, number: u64, sent: &InFlightPacket) {
        self.counts.spurious += 1;
        if let Some(place) = self.again.iter().position(|unit| *unit == sent.unit) {
            self.again.remove(place);
        }
        let overtaken_by = self.largest_acked.map_or(0, |largest| largest.saturating_sub(number));
        let threshold = (overtaken_by + 1).min(MAX_PACKET_THRESHOLD);
        self.packet_threshold = self.packet_threshold.max(threshold);
        self.time_threshold_eighths = REORDERED_TIME_THRESHOLD_EIGHTHS;
        let packet = LostPacket { number, sent: sent.at, bytes: u64::from(sent.bytes) };
        self.controller.on_spurious_loss(now, &packet);
    }

    /// RFC 9002, Section 6.1. Numbers and moments of sending both ascend, so the first packet that
    /// is not lost ends the search.
    pub(super) fn detect_losses(&mut self, now: Time) {
        self.lost.clear();
        self.loss_at = None;
        let Some(largest) = self.largest_acked else { return };
        let delay = Duration::from_nanos(self.rtt.loss_delay_ns(self.time_threshold_eighths));
        while self.first_in_flight < largest {
            let index = (self.first_in_flight - self.base) as usize;
            let sent = &mut self.ring[index];
            if sent.state == PacketState::InFlight {
                let overdue_at = sent.at + delay;
                let overtaken = largest >= self.first_in_flight + self.packet_threshold;
                if !overtaken && overdue_at > now {
                    self.loss_at = Some(overdue_at);
                    return;
                }
                sent.state = PacketState::Lost;
                self.in_flight_bytes -= u64::from(sent.bytes);
                self.in_flight_packets -= 1;
                self.again.push_back(sent.unit);
                self.lost.push(LostPacket {
                    number: self.first_in_flight,
                    sent: sent.at,
                    bytes: u64::from(sent.bytes),
                });
            }
            self.first_in_flight += 1;
        }
        // The largest itself has been acknowledged.
        self.first_in_flight = self.first_in_flight.max(largest + 1);
    }

    pub(super) fn report(&mut self, now: Time, rtt: Option<RttSample>, prior_in_flight_bytes: u64) {
        if self.acked.is_empty() && self.lost.is_empty() {
            return;
        }
        self.counts.declared_lost += self.lost.len() as u64;
        self.controller.on_event(&CongestionEvent {
            now,
            acked: &self.acked,
            lost: &self.lost,
            rtt,
            ecn_ce: 0,
            prior_in_flight_bytes,
            in_flight_bytes: self.in_flight_bytes,
            app_limited: self.app_limited,
        });
    }

    /// Removes packets that no acknowledgement is expected for.
    fn forget(&mut self, now: Time) {
        while let Some(front) = self.ring.front() {
            let gone = match front.state {
                PacketState::InFlight => false,
                PacketState::Done => true,
                PacketState::Lost => {
                    let memory_ns = self.rtt.probe_delay_ns(self.max_ack_delay_ns);
                    (now - front.at).as_nanos() as u64 > memory_ns * LOST_MEMORY_TIMEOUTS
                }
            };
            if !gone {
                return;
            }
            self.ring.pop_front();
            self.base += 1;
        }
    }
}
