use crate::{CongestionEvent, Time};

/// Tells time-outs that were for nothing (Eifel, RFC 3522; RFC 4015, Section 3.2): the first
/// acknowledgement after one is of a packet that had been sent before it, hence nothing was lost. A
/// mobile link that stands still for seconds does so, and delivers all that waited.
///
/// Not in the papers of PCC and Iris. A link of 20 Mbit/s that stands still for 2 s is used from 1 to
/// 4 s after that by 93 % (vivace-latency), 96 (proteus-p), 98 (allegro-latency), 100 (iris-min);
/// without this by 39, 34, 8 and 69.
///
/// Keeps what the sender had before the first of a row of time-outs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpuriousTimeout<T> {
    before: Option<(Time, T)>,
}

impl<T> Default for SpuriousTimeout<T> {
    fn default() -> Self {
        Self { before: None }
    }
}

impl<T: Copy> SpuriousTimeout<T> {
    /// A time-out; `before` is what the sender gives up.
    pub(crate) fn on_timeout(&mut self, now: Time, before: T) {
        self.before.get_or_insert((now, before));
    }

    /// What to go on with, if the acknowledgement shows that the time-outs were for nothing.
    pub(crate) fn on_event(&mut self, event: &CongestionEvent<'_>) -> Option<T> {
        let oldest = event.acked.first()?.sent;
        let (at, before) = self.before.take()?;
        (oldest < at && event.lost.is_empty()).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, LostPacket};

    const fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// What is left of time-outs at 1 and 2 s when a packet that was sent then is acknowledged.
    fn after(sent_ms: u64, lost: &[LostPacket]) -> Option<u32> {
        let mut timeout = SpuriousTimeout::default();
        timeout.on_timeout(at(1_000), 7);
        timeout.on_timeout(at(2_000), 3);
        let packet = |number, sent| AckedPacket { number, bytes: 1_200, sent };
        let acked = [packet(2, at(sent_ms)), packet(9, at(2_500))];
        let event = CongestionEvent {
            now: at(3_000),
            acked: &acked,
            lost,
            rtt: None,
            ecn_ce: 0,
            prior_in_flight_bytes: 0,
            in_flight_bytes: 0,
            app_limited: false,
        };
        let first = timeout.on_event(&event);
        assert_eq!(timeout.on_event(&event), None, "only the first acknowledgement tells");
        first
    }

    #[test]
    fn an_older_packet_that_arrives_shows_that_none_was_needed() {
        assert_eq!(after(900, &[]), Some(7), "what was before the first");
        assert_eq!(after(1_500, &[]), None, "a probe's");
        let lost = LostPacket { number: 1, bytes: 1_200, sent: at(400) };
        assert_eq!(after(900, &[lost]), None, "something was lost");
    }
}
