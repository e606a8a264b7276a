//! The sending end: numbers datagrams, keeps what was sent, and tells what is to be sent again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_wire::repair::{
    MAX_SECOND_PARTS, PART_HEADER_BYTES, RepairHeader, RepairKind, Sequence, put_second_part,
};

use super::fec::Fec;
use super::frame_id::FRAME_NUMBER_BITS;
use super::in_order;

/// Bytes of one flow that are kept until their acknowledgement: 200 ms of a stream of 95 Mbit/s, with room to spare.
/// The oldest are dropped.
pub(crate) const MAX_KEPT_BYTES: usize = 4 << 20;
/// Frames of one flow that are kept or known to be acknowledged, however small they are.
const MAX_FRAMES: usize = 16_384;
/// Frames for whose records memory is kept although there are fewer.
const KEPT_FRAMES: usize = 64;
/// A loss is detected after 9/8 of a round trip (RFC 9002, Section 6.1.2).
const LOSS_DELAY_RTTS: f64 = 9.0 / 8.0;

/// The content of a DATAGRAM frame that was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SentFrame {
    pub(crate) bytes: Vec<u8>,
    /// When it was sent for the first time.
    pub(crate) first_sent: Instant,
}

/// What follows from an outcome that the transport reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterOutcome {
    /// Nothing is to be done.
    Nothing,
    /// The frame is to be sent again.
    Retransmit,
    /// The frame is lost, and would arrive too late.
    TooLate,
}

/// One direction of a flow.
#[derive(Debug)]
pub(crate) struct RepairSender {
    deadline: Duration,
    /// Whether the deadline is that of QUIC, which follows the round trip.
    is_in_order: bool,
    keeps: bool,
    next_sequence: Sequence,
    /// The number of the first of `frames`.
    first_number: u32,
    /// What was sent, in the order of sending. `None` if nothing is to be done about a frame any more.
    frames: VecDeque<Option<SentFrame>>,
    /// Lost frames that are to be sent again.
    lost: VecDeque<SentFrame>,
    /// Second parts that have not been sent yet, as the payload of a datagram.
    second_parts: Vec<u8>,
    second_part_count: usize,
    /// If both ends use error correction.
    fec: Option<Fec>,
    kept_bytes: usize,
}

impl RepairSender {
    /// Frames may be late by `deadline`, counted from when they were sent first.
    pub(crate) fn new(deadline: Duration, fec: bool, now: Instant) -> Self {
        Self {
            deadline,
            is_in_order: false,
            keeps: true,
            next_sequence: Sequence::default(),
            first_number: 0,
            frames: VecDeque::new(),
            lost: VecDeque::new(),
            second_parts: Vec::new(),
            second_part_count: 0,
            fec: fec.then(|| Fec::new(deadline, now)),
            kept_bytes: 0,
        }
    }

    /// Of a flow of QUIC, whose deadline follows the round trip.
    pub(crate) fn in_order(now: Instant) -> Self {
        let deadline = in_order::deadline(Duration::ZERO);
        Self { is_in_order: true, ..Self::new(deadline, false, now) }
    }

    /// The number of the datagram that is sent next.
    pub(crate) fn next_sequence(&self) -> Sequence {
        self.next_sequence
    }

    /// The largest payload of a datagram, where one has room for `room` bytes.
    pub(crate) fn payload_room(&self, room: usize) -> usize {
        match &self.fec {
            Some(fec) if fec.is_active() => Fec::payload_room(room),
            _ => room,
        }
    }

    /// A datagram is about to be handed to the transport with [`RepairSender::next_sequence`].
    pub(crate) fn add_to_block(&mut self, kind: RepairKind, payload: &[u8], now: Instant) {
        if let Some(fec) = &mut self.fec {
            fec.add(self.next_sequence, kind, payload, now);
        }
    }

    /// The next datagram takes another way, and belongs to no block.
    pub(crate) fn close_block(&mut self) {
        if let Some(fec) = &mut self.fec {
            fec.close();
        }
    }

    /// Takes a repair datagram that is to be sent now; `paused` if no packet waits. Returns the number of its block and
    /// its payload.
    pub(crate) fn pop_repair(&mut self, paused: bool, now: Instant) -> Option<(Sequence, Vec<u8>)> {
        let fec = self.fec.as_mut()?;
        fec.poll(paused, now);
        fec.pop_repair()
    }

    /// Whether a block has begun whose end only time brings.
    pub(crate) fn has_open_block(&self) -> bool {
        self.fec.as_ref().is_some_and(Fec::has_open_block)
    }

    /// The datagram with [`RepairSender::next_sequence`] has been handed to the transport.
    pub(crate) fn advance(&mut self) {
        self.next_sequence = self.next_sequence.successor();
    }

    /// The number of the frame that is sent next.
    pub(crate) fn next_frame(&self) -> u32 {
        self.first_number.wrapping_add(self.frames.len() as u32)
    }

    /// Notes the round-trip time. A frame that gets lost can be repaired if the loss shows before the deadline, after
    /// 9/8 of a round trip: sent again it needs as long as the first time.
    pub(crate) fn observe_rtt(&mut self, rtt: Duration, now: Instant) {
        if self.is_in_order {
            self.deadline = in_order::deadline(rtt);
        }
        self.keeps = rtt.mul_f64(LOSS_DELAY_RTTS) <= self.deadline;
        if let Some(fec) = &mut self.fec {
            fec.update(self.keeps, now);
        }
    }

    /// Whether frames are to be kept, as they can be repaired.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }

    /// A frame has been handed to the transport under [`RepairSender::next_frame`]; `None` if it is not to be kept.
    pub(crate) fn on_sent(&mut self, frame: Option<SentFrame>, now: Instant) {
        self.kept_bytes += frame.as_ref().map_or(0, |frame| frame.bytes.len());
        // Before the frame is added: the record must not grow for a frame more than it may have.
        while let Some(oldest) = self.frames.front() {
            let is_over = oldest.as_ref().is_none_or(|frame| self.is_late(frame, now));
            if !is_over && self.frames.len() < MAX_FRAMES && self.kept_bytes <= MAX_KEPT_BYTES {
                break;
            }
            self.forget_oldest();
        }
        self.frames.push_back(frame);
    }

    fn forget_oldest(&mut self) {
        if let Some(Some(frame)) = self.frames.pop_front() {
            self.kept_bytes -= frame.bytes.len();
        }
        self.first_number = self.first_number.wrapping_add(1);
        shrink(&mut self.frames);
    }

    /// The transport reports the outcome of the frame with `number`, modulo 2^24.
    pub(crate) fn on_outcome(&mut self, number: u32, acked: bool, now: Instant) -> AfterOutcome {
        if let Some(fec) = self.fec.as_mut().filter(|_| !acked) {
            fec.on_loss(now);
        }
        let index = number.wrapping_sub(self.first_number) % (1 << FRAME_NUMBER_BITS);
        let frame = self.frames.get_mut(index as usize).and_then(Option::take);
        let Some(frame) = frame else {
            return if acked { AfterOutcome::Nothing } else { AfterOutcome::TooLate };
        };
        while matches!(self.frames.front(), Some(None)) {
            self.forget_oldest();
        }
        if !acked && !self.is_late(&frame, now) {
            self.lost.push_back(frame);
            return AfterOutcome::Retransmit;
        }
        self.kept_bytes -= frame.bytes.len();
        if acked { AfterOutcome::Nothing } else { AfterOutcome::TooLate }
    }

    /// Drops lost frames that are late now. Returns how many.
    pub(crate) fn drop_late(&mut self, now: Instant) -> u64 {
        let mut dropped = 0;
        let deadline = self.deadline;
        let is_late =
            |frame: &mut SentFrame| now.saturating_duration_since(frame.first_sent) > deadline;
        while let Some(frame) = self.lost.pop_front_if(is_late) {
            self.kept_bytes -= frame.bytes.len();
            dropped += 1;
        }
        shrink(&mut self.lost);
        dropped
    }

    /// The lost frame that is sent next.
    pub(crate) fn lost(&self) -> Option<&SentFrame> {
        self.lost.front()
    }

    /// Treats a frame as lost that could not be sent.
    pub(crate) fn push_lost(&mut self, frame: SentFrame) {
        self.kept_bytes += frame.bytes.len();
        self.lost.push_back(frame);
    }

    /// Takes the lost frame that is sent next.
    pub(crate) fn take_lost(&mut self) -> Option<SentFrame> {
        let frame = self.lost.pop_front()?;
        self.kept_bytes -= frame.bytes.len();
        shrink(&mut self.lost);
        Some(frame)
    }

    /// Keeps the second part of a packet for a moment: a datagram carries several.
    pub(crate) fn push_second_part(&mut self, first_part: Sequence, part: &[u8]) {
        put_second_part(&mut self.second_parts, first_part, part);
        self.second_part_count += 1;
    }

    /// Whether second parts are to leave before the next packet: no packet follows, or its own second part of `next_bytes`
    /// does not fit into one datagram with them, whose payload has `room`.
    pub(crate) fn are_second_parts_due(&self, next_bytes: Option<usize>, room: usize) -> bool {
        let fits = next_bytes
            .is_some_and(|next| self.second_parts.len() + PART_HEADER_BYTES + next <= room);
        self.second_part_count > 0 && (!fits || self.second_part_count >= MAX_SECOND_PARTS)
    }

    /// Takes the second parts that wait, as the payload of a datagram.
    pub(crate) fn take_second_parts(&mut self) -> Vec<u8> {
        self.second_part_count = 0;
        std::mem::take(&mut self.second_parts)
    }

    /// Whether it has something to send.
    pub(crate) fn has_pending(&self) -> bool {
        let has_repairs = self.fec.as_ref().is_some_and(Fec::has_repairs);
        !self.lost.is_empty() || self.second_part_count > 0 || has_repairs
    }

    /// Bytes that it holds: frames, and the records of them.
    pub(crate) fn held_bytes(&self) -> usize {
        let fec = self.fec.as_ref().map_or(0, Fec::held_bytes);
        let records = self.frames.capacity() * size_of::<Option<SentFrame>>()
            + self.lost.capacity() * size_of::<SentFrame>();
        self.kept_bytes + records + self.second_parts.capacity() + fec
    }

    fn is_late(&self, frame: &SentFrame, now: Instant) -> bool {
        now.saturating_duration_since(frame.first_sent) > self.deadline
    }
}

/// Gives back memory of a queue that has become short. A factor of two lies between growth and this, so that it is rare.
fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT_FRAMES && queue.len() < queue.capacity() / 4 {
        queue.shrink_to((2 * queue.len()).max(KEPT_FRAMES));
    }
}

/// Divides a packet in two parts, each of which has room in the payload of a datagram, the second one with its header.
/// `None` if that is not possible.
pub(crate) fn split(packet: &[u8], room: usize) -> Option<(&[u8], &[u8])> {
    let parts = packet.split_at_checked(room)?;
    (parts.1.len() + PART_HEADER_BYTES <= room).then_some(parts)
}

/// The content of a DATAGRAM frame: `head`, a header, and a payload.
pub(crate) fn datagram(
    head: &[u8],
    kind: RepairKind,
    sequence: Sequence,
    payload: &[u8],
) -> Vec<u8> {
    [head, &RepairHeader { kind, sequence }.to_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(200);
    const MS: Duration = Duration::from_millis(1);

    fn send(sender: &mut RepairSender, bytes: &[u8], first_sent: Instant, now: Instant) -> u32 {
        let number = sender.next_frame();
        sender.on_sent(Some(SentFrame { bytes: bytes.to_vec(), first_sent }), now);
        number
    }

    #[test]
    fn a_lost_frame_is_sent_again_until_its_deadline() {
        let (mut sender, start) =
            (RepairSender::new(DEADLINE, false, Instant::now()), Instant::now());
        let mut number = send(&mut sender, b"frame", start, start);
        for round in 1..=2 {
            let now = start + round * 80 * MS;
            assert_eq!(sender.on_outcome(number, false, now), AfterOutcome::Retransmit);
            assert_eq!(sender.drop_late(now), 0);
            let frame = sender.take_lost().unwrap();
            assert_eq!((&frame.bytes[..], frame.first_sent), (&b"frame"[..], start));
            assert!(!sender.has_pending());
            number = send(&mut sender, &frame.bytes, frame.first_sent, now);
        }
        let late = start + 240 * MS;
        assert_eq!(sender.on_outcome(number, false, late), AfterOutcome::TooLate);
        assert_eq!((sender.lost(), sender.kept_bytes), (None, 0));
    }

    #[test]
    fn an_acknowledged_frame_is_not_kept() {
        let (mut sender, now) =
            (RepairSender::new(DEADLINE, false, Instant::now()), Instant::now());
        let numbers: Vec<_> = (0..3).map(|_| send(&mut sender, b"frame", now, now)).collect();
        assert_eq!(sender.kept_bytes, 15);
        assert_eq!(sender.on_outcome(numbers[1], true, now), AfterOutcome::Nothing);
        assert_eq!(sender.kept_bytes, 10);
        // Each frame has one outcome; another one changes nothing.
        assert_eq!(sender.on_outcome(numbers[1], false, now), AfterOutcome::TooLate);
        assert_eq!(sender.on_outcome(numbers[2] + 1, true, now), AfterOutcome::Nothing);
        assert_eq!(sender.on_outcome(numbers[0], false, now), AfterOutcome::Retransmit);
        assert_eq!(sender.on_outcome(numbers[2], true, now), AfterOutcome::Nothing);
        assert_eq!(sender.kept_bytes, 5);
    }

    #[test]
    fn frame_numbers_wrap_around() {
        let (mut sender, now) =
            (RepairSender::new(DEADLINE, false, Instant::now()), Instant::now());
        sender.first_number = (1 << 24) - 1;
        let first = send(&mut sender, b"a", now, now);
        let second = send(&mut sender, b"b", now, now);
        let modulus = 1 << 24;
        assert_eq!(sender.on_outcome(second % modulus, false, now), AfterOutcome::Retransmit);
        assert_eq!(sender.on_outcome(first % modulus, true, now), AfterOutcome::Nothing);
        assert_eq!(sender.take_lost().unwrap().bytes, b"b");
    }

    #[test]
    fn what_waits_too_long_to_be_sent_again_is_dropped() {
        let (mut sender, now) =
            (RepairSender::new(DEADLINE, false, Instant::now()), Instant::now());
        let number = send(&mut sender, b"frame", now, now);
        assert_eq!(sender.on_outcome(number, false, now + 199 * MS), AfterOutcome::Retransmit);
        assert_eq!(sender.drop_late(now + 200 * MS), 0);
        assert_eq!(sender.drop_late(now + 201 * MS), 1);
        assert!(!sender.has_pending() && sender.kept_bytes == 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut sender, now) =
            (RepairSender::new(DEADLINE, false, Instant::now()), Instant::now());
        let first = send(&mut sender, &[0; 1000], now, now);
        for _ in 0..2 * MAX_KEPT_BYTES / 1000 {
            send(&mut sender, &[0; 1000], now, now);
        }
        assert!((MAX_KEPT_BYTES - 1000..=MAX_KEPT_BYTES).contains(&sender.kept_bytes));
        assert_eq!(sender.on_outcome(first, false, now), AfterOutcome::TooLate);
        let mut small = RepairSender::new(DEADLINE, false, Instant::now());
        for _ in 0..2 * MAX_FRAMES {
            send(&mut small, b"1", now, now);
        }
        assert_eq!((small.frames.len(), small.kept_bytes), (MAX_FRAMES, MAX_FRAMES));
        // Late ones go first.
        send(&mut small, b"1", now + 201 * MS, now + 201 * MS);
        assert_eq!(small.kept_bytes, 1);
    }

    /// The record of a small frame is larger than the frame.
    #[test]
    fn records_of_frames_count_as_held_and_are_given_back() {
        let record_bytes = size_of::<Option<SentFrame>>();
        let (mut sender, now) =
            (RepairSender::new(DEADLINE, false, Instant::now()), Instant::now());
        let numbers: Vec<_> =
            (0..2 * MAX_FRAMES).map(|_| send(&mut sender, b"1", now, now)).collect();
        let most_bytes = MAX_FRAMES * (record_bytes + 1);
        assert!((most_bytes..=most_bytes + MAX_FRAMES).contains(&sender.held_bytes()));
        for number in &numbers[MAX_FRAMES..] {
            assert_eq!(sender.on_outcome(*number, false, now), AfterOutcome::Retransmit);
        }
        assert!(sender.held_bytes() >= most_bytes, "lost frames have records too");
        while sender.take_lost().is_some() {}
        let least_bytes = 2 * KEPT_FRAMES * record_bytes;
        assert!(sender.held_bytes() <= 2 * least_bytes, "{}", sender.held_bytes());
        // Also where the acknowledgement of the first frame is the last one.
        let numbers: Vec<_> = (0..1000).map(|_| send(&mut sender, b"1", now, now)).collect();
        for number in numbers.iter().rev() {
            assert_eq!(sender.on_outcome(*number, true, now), AfterOutcome::Nothing);
        }
        assert!(sender.held_bytes() <= 2 * least_bytes, "{}", sender.held_bytes());
        assert!(sender.frames.is_empty() && sender.kept_bytes == 0);
    }

    #[test]
    fn repair_needs_a_round_trip_below_the_deadline() {
        let mut sender = RepairSender::new(DEADLINE, false, Instant::now());
        for (rtt, keeps) in [(177 * MS, true), (178 * MS, false), (50 * MS, true)] {
            sender.observe_rtt(rtt, Instant::now());
            assert_eq!(sender.keeps(), keeps, "{rtt:?}");
        }
    }

    #[test]
    fn the_deadline_of_quic_follows_the_round_trip() {
        let start = Instant::now();
        let mut sender = RepairSender::in_order(start);
        for rtt in [50, 100, 400] {
            sender.observe_rtt(rtt * MS, start);
            assert!(sender.keeps());
            let age = in_order::deadline(rtt * MS);
            for (age, after) in [(age, AfterOutcome::Retransmit), (age + MS, AfterOutcome::TooLate)]
            {
                let number = send(&mut sender, b"frame", start, start);
                assert_eq!(sender.on_outcome(number, false, start + age), after);
            }
        }
        // A round trip that is longer than the longest deadline leaves no time.
        sender.observe_rtt(3000 * MS, start);
        assert!(!sender.keeps());
    }

    #[test]
    fn a_packet_is_split_where_two_datagrams_have_room() {
        let packet: Vec<_> = (0..100_u8).collect();
        for (room, sizes) in [(95, Some((95, 5))), (53, Some((53, 47))), (52, None), (4, None)] {
            let parts = split(&packet, room);
            assert_eq!(parts.map(|(first, second)| (first.len(), second.len())), sizes, "{room}");
            assert!(parts.is_none_or(|(first, second)| [first, second].concat() == packet));
        }
        let frame = datagram(&[9, 2], RepairKind::FirstPart, Sequence::new(7), b"part");
        let (header, part) = RepairHeader::parse(&frame[2..]).unwrap();
        assert_eq!(
            header,
            RepairHeader { kind: RepairKind::FirstPart, sequence: Sequence::new(7) }
        );
        assert_eq!((&frame[..2], part), (&[9, 2][..], &b"part"[..]));
    }

    #[test]
    fn second_parts_leave_once_they_fill_a_datagram() {
        let mut sender = RepairSender::new(DEADLINE, false, Instant::now());
        assert!(!sender.are_second_parts_due(Some(2000), 1400));
        assert!(!sender.are_second_parts_due(None, 1400));
        for number in 0..13 {
            assert!(!sender.are_second_parts_due(Some(100), 1400), "{number}");
            sender.push_second_part(Sequence::new(number), &[0; 100]);
            assert!(sender.are_second_parts_due(None, 1400));
        }
        assert!(sender.are_second_parts_due(Some(100), 1400));
        assert!(sender.has_pending() && sender.held_bytes() >= 13 * 105);
        let payload = sender.take_second_parts();
        assert_eq!(millrace_wire::repair::second_parts(&payload).count(), 13);
        assert!(!sender.has_pending() && sender.held_bytes() == 0);
        for number in 0..MAX_SECOND_PARTS as u32 {
            assert!(!sender.are_second_parts_due(Some(1), 1400));
            sender.push_second_part(Sequence::new(number), &[0]);
        }
        assert!(sender.are_second_parts_due(Some(1), 1400));
    }
}
