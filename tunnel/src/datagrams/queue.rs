//! Datagrams that wait for the tunnel, bounded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most bytes that wait in one flow: about 100 ms of a video of 20 Mbit/s.
pub const MAX_BYTES: usize = 256 << 10;
/// Most bytes that wait in one flow whose packets are repaired: several large frames of 4K video, which origins send as
/// fast as they can; [`max_queue_delay`] of QUIC at 56 Mbit/s and a round trip of 100 ms.
const MAX_REPAIRED_BYTES: usize = 2 << 20;
/// Most datagrams that wait in one flow whose packets are repaired.
const MAX_REPAIRED_DATAGRAMS: usize = 4096;
/// For how long the oldest datagram must have been late before late ones are dropped. A burst is shorter: the player may
/// have a buffer for it, and the datagrams behind it are in time again.
const MIN_LATE_TIME: Duration = Duration::from_secs(3);
/// Bytes that the flows of a worker share when there are many.
const SHARED_BYTES: usize = 64 << 20;
/// What each has in any case, however many there are.
const MIN_BYTES: usize = 16 << 10;
/// Most datagrams that wait in one flow, however small they are.
pub const MAX_DATAGRAMS: usize = 512;
/// For how many round trips of the tunnel packets of QUIC may wait. In order, a lost packet takes a round trip longer, so
/// the connection inside has two, and more beyond the tunnel; a sender that halves its window (RFC 9002, Section 7.3.2) keeps
/// the link busy if the queue is as long as its round trip (Appenzeller et al., SIGCOMM 2004).
const MAX_QUEUE_DELAY_RTTS: u32 = 3;
/// The least and the most of that time: beyond the tunnel the path has a round trip too, and viewers wait for what is queued.
const MAX_QUEUE_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// For how long packets of QUIC may wait, where a round trip of the tunnel takes `rtt`.
pub(crate) fn max_queue_delay(rtt: Duration) -> Duration {
    let [least, most] = MAX_QUEUE_DELAYS;
    (rtt * MAX_QUEUE_DELAY_RTTS).clamp(least, most)
}

/// What may wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    bytes: usize,
    datagrams: usize,
}

impl QueueLimit {
    /// So many bytes, at most [`MAX_BYTES`].
    pub fn of_bytes(bytes: usize) -> Self {
        Self { bytes: bytes.min(MAX_BYTES), datagrams: MAX_DATAGRAMS }
    }

    /// Of each of so many flows of a worker.
    pub(crate) fn of_flow(flows: usize, is_repaired: bool) -> Self {
        let (most_bytes, datagrams) = match is_repaired {
            true => (MAX_REPAIRED_BYTES, MAX_REPAIRED_DATAGRAMS),
            false => (MAX_BYTES, MAX_DATAGRAMS),
        };
        let share = SHARED_BYTES / flows.max(1);
        Self { bytes: share.clamp(MIN_BYTES, most_bytes), datagrams }
    }

    /// In bytes.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }
}

/// A datagram that waits.
#[derive(Debug)]
struct WaitingDatagram {
    bytes: Vec<u8>,
    since: Instant,
}

/// A bounded queue of datagrams. When it is full, the oldest are dropped: late datagrams are of no
/// use and delay those behind them.
#[derive(Debug, Default)]
pub struct Queue {
    datagrams: VecDeque<WaitingDatagram>,
    bytes: usize,
    /// Since when the oldest datagram has been late at each look.
    late_since: Option<Instant>,
}

impl Queue {
    /// Adds the newest datagram. Returns how many old ones were dropped, so that not more than
    /// `limit` wait.
    pub fn push(&mut self, datagram: Vec<u8>, limit: QueueLimit, now: Instant) -> u64 {
        let mut dropped = 0;
        while !self.datagrams.is_empty()
            && (self.bytes + datagram.len() > limit.bytes
                || self.datagrams.len() >= limit.datagrams)
        {
            self.pop();
            dropped += 1;
        }
        self.bytes += datagram.len();
        self.datagrams.push_back(WaitingDatagram { bytes: datagram, since: now });
        dropped
    }

    /// Drops datagrams that have waited for longer than `deadline`, if there have been late ones for [`MIN_LATE_TIME`].
    /// Returns how many.
    pub(crate) fn drop_late(&mut self, deadline: Duration, now: Instant) -> u64 {
        let waited = |it: &WaitingDatagram| now.saturating_duration_since(it.since);
        let oldest = self.datagrams.front().map_or(Duration::ZERO, waited);
        // Where a queue stands, dropping brings it to the deadline and no further.
        if oldest <= deadline / 2 {
            self.late_since = None;
        } else if oldest > deadline {
            self.late_since.get_or_insert(now);
        }
        if self.late_since.is_none_or(|since| now.saturating_duration_since(since) < MIN_LATE_TIME)
        {
            return 0;
        }
        self.drop_older_than(deadline, now)
    }

    /// Drops datagrams that have waited for longer than `most`. Returns how many.
    pub(crate) fn drop_older_than(&mut self, most: Duration, now: Instant) -> u64 {
        let mut dropped = 0;
        while let Some(oldest) = self.datagrams.front()
            && now.saturating_duration_since(oldest.since) > most
        {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let WaitingDatagram { bytes, .. } = self.datagrams.pop_front()?;
        self.bytes -= bytes.len();
        Some(bytes)
    }

    /// The oldest.
    pub fn front(&self) -> Option<&[u8]> {
        self.datagrams.front().map(|it| it.bytes.as_slice())
    }

    /// The oldest, to be changed in place.
    pub(crate) fn front_mut(&mut self) -> Option<&mut [u8]> {
        self.datagrams.front_mut().map(|it| it.bytes.as_mut_slice())
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_flows_have_less_each() {
        let share = |flows, is_repaired| QueueLimit::of_flow(flows, is_repaired).bytes();
        for (flows, bytes, repaired_bytes) in [
            (0, MAX_BYTES, MAX_REPAIRED_BYTES),
            (32, MAX_BYTES, MAX_REPAIRED_BYTES),
            (256, MAX_BYTES, MAX_BYTES),
            (1024, MAX_BYTES / 4, MAX_BYTES / 4),
            (1_000_000, MIN_BYTES, MIN_BYTES),
        ] {
            assert_eq!(
                (share(flows, false), share(flows, true)),
                (bytes, repaired_bytes),
                "{flows}"
            );
        }
        let (mut queue, now) = (Queue::default(), Instant::now());
        let limit = QueueLimit::of_flow(1_000_000, true);
        let dropped: u64 = (0..20).map(|_| queue.push(vec![0; 1024], limit, now)).sum();
        assert_eq!((dropped, queue.len(), queue.bytes()), (4, 16, MIN_BYTES));
    }

    #[test]
    fn late_datagrams_of_a_burst_stay_and_those_of_a_standing_queue_go() {
        const DEADLINE: Duration = Duration::from_millis(200);
        let step = Duration::from_millis(10);
        let start = Instant::now();
        for (served, are_dropped) in [(3, false), (1, true)] {
            // One datagram comes every 10 ms after a burst of a second; `served` leave in 20 ms.
            let (mut queue, mut dropped, mut late) = (Queue::default(), 0, Duration::ZERO);
            for _ in 0..100 {
                queue.push(vec![0], LIMIT, start);
            }
            for round in 0..1000 {
                let now = start + round * step;
                queue.push(vec![0], LIMIT, now);
                dropped += queue.drop_late(DEADLINE, now);
                for _ in 0..if round % 2 == 0 { served } else { 0 } {
                    let waiting = queue.datagrams.front().map(|it| now - it.since);
                    late = waiting.filter(|_| round > 500).map_or(late, |it| it.max(late));
                    queue.pop();
                }
            }
            assert_eq!(dropped > 0, are_dropped, "{served}: {dropped}");
            assert!(late <= DEADLINE, "{served}: {late:?}");
        }
    }

    const LIMIT: QueueLimit = QueueLimit { bytes: MAX_BYTES, datagrams: MAX_DATAGRAMS };

    fn rest(mut queue: Queue) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop()).map(|datagram| datagram[0]).collect()
    }

    #[test]
    fn packets_of_quic_wait_for_three_round_trips_at_most() {
        let ms = Duration::from_millis;
        for (rtt, delay) in [(0, 100), (50, 150), (100, 300), (600, 500)] {
            assert_eq!(max_queue_delay(ms(rtt)), ms(delay), "{rtt}");
        }
        let (mut queue, start) = (Queue::default(), Instant::now());
        for number in 0..3 {
            queue.push(vec![number], LIMIT, start + u32::from(number) * ms(10));
        }
        assert_eq!(queue.drop_older_than(ms(200), start + ms(200)), 0);
        assert_eq!(queue.drop_older_than(ms(200), start + ms(211)), 2);
        assert_eq!(rest(queue), [2]);
    }

    #[test]
    fn the_oldest_make_room_and_the_order_stays() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let quarter = MAX_BYTES / 4;
        for number in 0..4 {
            assert_eq!(queue.push(vec![number; quarter], LIMIT, now), 0);
        }
        assert_eq!(queue.push(vec![4; quarter + 1], LIMIT, now), 2);
        assert_eq!(queue.push(vec![5; 10], LIMIT, now), 0);
        assert_eq!(queue.front().map(|datagram| datagram[0]), Some(2));
        assert_eq!(rest(queue), [2, 3, 4, 5]);
    }

    #[test]
    fn small_ones_are_counted_too() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let limit = QueueLimit::of_bytes(2 * MAX_BYTES);
        let push = |_| queue.push(vec![1], limit, now);
        let dropped: u64 = (0..MAX_DATAGRAMS + 3).map(push).sum();
        assert_eq!((dropped, queue.len()), (3, MAX_DATAGRAMS));
        assert_eq!(queue.push(vec![2; MAX_BYTES], limit, now), MAX_DATAGRAMS as u64);
        assert_eq!(rest(queue), [2]);
    }
}
