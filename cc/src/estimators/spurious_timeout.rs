use crate::{CongestionEvent, Time};

/// Detects spurious timeouts (Eifel, RFC 3522; RFC 4015, Section 3.2): the first acknowledgement after a
/// timeout is of a packet sent before it, hence nothing was lost. This happens when a mobile link pauses
/// for seconds and then delivers all waiting packets.
///
/// Not in the papers of PCC and Iris; docs/research/cc/pcc.md and iris.md have measurements.
///
/// Keeps the sender's value before the first of consecutive timeouts.
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
    /// A timeout; `before` is the value that the sender gives up.
    pub(crate) fn on_timeout(&mut self, now: Time, before: T) {
        self.before.get_or_insert((now, before));
    }

    /// The value to restore, if the acknowledgement shows that the timeouts were spurious.
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

    /// The restored value after timeouts at 1 and 2 s, when a packet sent at `sent_ms` is acknowledged.
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
    fn acknowledgement_of_an_older_packet_shows_a_spurious_timeout() {
        assert_eq!(after(900, &[]), Some(7), "what was before the first");
        assert_eq!(after(1_500, &[]), None, "a probe's");
        let lost = LostPacket { number: 1, bytes: 1_200, sent: at(400) };
        assert_eq!(after(900, &[lost]), None, "something was lost");
    }
}
