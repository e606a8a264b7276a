use std::time::Duration;

use millrace_cc::{Bandwidth, Time};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::attached_player::AttachedPlayer;
use crate::random::{SeedPurpose, seed};
use crate::receiver::Receiver;
use crate::sender::{SenderCounts, SimulatedSender};
use crate::tally::DelayTally;
use crate::{FlowSample, FlowSetup, FrameTotals, Setup, SimulatedFlowTotals};

/// Packet counts of a flow since the start of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowPacketCounts {
    pub delivered: u64,
    pub delivered_bytes: u64,
    pub goodput_bytes: u64,
    pub dropped: u64,
    pub random_lost: u64,
    pub segments: u64,
    pub frames: u64,
    pub late_frames: u64,
}

/// A sender, its receiver, and what is counted about them.
#[derive(Debug)]
pub(crate) struct FlowRun {
    pub sender: SimulatedSender,
    pub receiver: Receiver,
    pub reverse_loss: Pcg64Mcg,
    pub extra_rtt_ns: u64,
    /// Whether the supervisor watches it.
    pub is_watched: bool,
    pub started: bool,
    pub counts: FlowPacketCounts,
    pub rtt: DelayTally,
    pub queueing: DelayTally,
    pub segment_time: DelayTally,
    pub player: Option<AttachedPlayer>,
    frame_delay: DelayTally,
    at_warmup: (SenderCounts, FlowPacketCounts),
    at_sample: (SenderCounts, FlowPacketCounts),
}

impl FlowRun {
    pub(crate) fn new(setup: &Setup, index: usize, flow: &FlowSetup, is_watched: bool) -> Self {
        let reverse = seed(setup.seed, SeedPurpose::Reverse, index);
        Self {
            sender: SimulatedSender::new(flow, seed(setup.seed, SeedPurpose::Controller, index)),
            receiver: Receiver::new(&flow.ack),
            reverse_loss: Pcg64Mcg::seed_from_u64(reverse),
            extra_rtt_ns: flow.extra_rtt.as_nanos() as u64,
            is_watched,
            started: false,
            counts: FlowPacketCounts::default(),
            rtt: DelayTally::new(),
            queueing: DelayTally::new(),
            segment_time: DelayTally::new(),
            player: AttachedPlayer::of(flow),
            frame_delay: DelayTally::new(),
            at_warmup: Default::default(),
            at_sample: Default::default(),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.started && !self.sender.is_stopped()
    }

    /// Ends the warm-up: totals count from here on.
    pub(crate) fn on_warmed_up(&mut self) {
        self.at_warmup = (self.sender.counts, self.counts);
        self.rtt.clear();
        self.queueing.clear();
        self.segment_time.clear();
        self.frame_delay.clear();
    }

    /// Fills in `sample` for the time since the previous one.
    pub(crate) fn sample(&mut self, now: Time, every: Duration, sample: &mut FlowSample) {
        let (sent, counts) = (self.sender.counts, self.counts);
        let (sent_before, before) = std::mem::replace(&mut self.at_sample, (sent, counts));
        let rate = |bytes| Bandwidth::from_bytes_and_time(bytes, every);
        let rtts = sent.rtt_samples - sent_before.rtt_samples;
        let rtt_ns = (sent.rtt_sum_ns - sent_before.rtt_sum_ns).checked_div(rtts);
        *sample = FlowSample {
            active: self.is_active(),
            throughput: rate(counts.delivered_bytes - before.delivered_bytes),
            goodput: rate(counts.goodput_bytes - before.goodput_bytes),
            sent_packets: sent.sent - sent_before.sent,
            lost_packets: sent.declared_lost - sent_before.declared_lost,
            rtt: rtt_ns.map(Duration::from_nanos),
            smoothed_rtt: self.sender.smoothed_rtt(),
            in_flight_bytes: self.sender.in_flight_bytes(),
            metrics: self.sender.metrics(),
            player: self.player.as_mut().map(|player| player.sample(now)),
        };
    }

    pub(crate) fn outcome(&self, setup: &Setup, flow: &FlowSetup) -> SimulatedFlowTotals {
        let (sent, counts) = (self.sender.counts, self.counts);
        let (sent_before, before) = self.at_warmup;
        let end = flow.stop.unwrap_or(setup.duration).min(setup.duration);
        let active = end.saturating_sub(flow.start.max(setup.warmup));
        let rate = |bytes| Bandwidth::from_bytes_and_time(bytes, active);
        SimulatedFlowTotals {
            algorithm: flow.algorithm.name(),
            active,
            goodput: rate(counts.goodput_bytes - before.goodput_bytes),
            throughput: rate(counts.delivered_bytes - before.delivered_bytes),
            sent_packets: sent.sent - sent_before.sent,
            retransmitted_packets: sent.retransmitted - sent_before.retransmitted,
            delivered_packets: counts.delivered - before.delivered,
            dropped_packets: counts.dropped - before.dropped,
            random_lost_packets: counts.random_lost - before.random_lost,
            declared_lost_packets: sent.declared_lost - sent_before.declared_lost,
            spurious_losses: sent.spurious - sent_before.spurious,
            probe_timeouts: sent.probe_timeouts - sent_before.probe_timeouts,
            rtt: self.rtt.summary(),
            queueing: self.queueing.summary(),
            segments: counts.segments - before.segments,
            segment_time: self.segment_time.summary(),
            player: self.player.as_ref().map(|player| player.outcome(Time::ZERO + end)),
            frames: FrameTotals {
                frames: counts.frames - before.frames,
                late: counts.late_frames - before.late_frames,
                skipped: sent.skipped_frames - sent_before.skipped_frames,
                delay: self.frame_delay.summary(),
            },
        }
    }

    /// Counts the frames that have arrived whole, and all frames before them, by `now`.
    pub(crate) fn count_frames(&mut self, now: Time) {
        while let Some(frame) = self.sender.oldest_frame() {
            if !self.receiver.has_all(frame.end_units) {
                return;
            }
            self.sender.remove_oldest_frame();
            let delay = now - frame.captured;
            self.counts.frames += 1;
            self.counts.late_frames += u64::from(delay > FrameTotals::LATE);
            self.frame_delay.record(delay.as_nanos() as u64);
        }
    }

    /// The segment that `now` completes, if any.
    pub(crate) fn completed_segment(&mut self) -> Option<crate::sender::SegmentRequest> {
        let request = self.sender.request.as_ref()?;
        if !self.receiver.has_all(request.end_units) {
            return None;
        }
        self.sender.request.take()
    }

    /// Next wake-up of the sender; `None` before the flow starts and after it stops.
    pub(crate) fn next_wake_ns(&self) -> Option<u64> {
        if !self.started {
            return None;
        }
        self.sender.next_wake().map(Time::as_nanos)
    }
}
