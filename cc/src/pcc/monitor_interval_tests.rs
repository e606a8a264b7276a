use super::*;

const TARGET: Bandwidth = Bandwidth::from_bits_per_s(12_000_000);

fn sent(number: u64) -> SentPacket {
    // One packet of 1500 bytes a millisecond is 12 Mbit/s.
    SentPacket {
        number,
        time: Time::from_nanos(number * 1_000_000),
        bytes: 1500,
        prior_in_flight_bytes: 0,
        has_data: true,
    }
}

fn send(intervals: &mut Intervals, numbers: std::ops::Range<u64>) {
    let extent = IntervalExtent { duration: Duration::from_millis(10), packets: 5 };
    for number in numbers {
        let packet = sent(number);
        intervals.close_if_due(&packet);
        if !intervals.is_open() {
            intervals.open(number, TARGET, extent, &packet);
        }
        intervals.on_sent(&packet);
    }
}

fn ack(intervals: &mut Intervals, number: u64) {
    let sent = sent(number).time;
    let acked = AckedPacket { number, sent, bytes: 1500 };
    intervals.on_acked(sent + Duration::from_millis(30), &acked);
    intervals.on_rtt(&acked, Duration::from_micros(30_000 + 50 * number));
}

#[test]
fn it_closes_when_each_packet_is_acked_lost_or_discarded_and_not_before() {
    let mut intervals = Intervals::default();
    send(&mut intervals, 0..21);
    // Packet 9 overtakes, and packets of the next interval are acknowledged first.
    for number in [9, 12, 13, 0, 1, 2, 3, 4, 5, 6] {
        ack(&mut intervals, number);
    }
    intervals.on_lost(&LostPacket { number: 7, sent: sent(7).time, bytes: 1500 });
    assert!(intervals.pop_complete().is_none(), "packet 8 is still under way");
    intervals.on_discarded(8);
    let (id, outcome) = intervals.pop_complete().expect("all are settled");
    assert_eq!((id, outcome.packets, outcome.lost), (0, 9, 1));
    assert!((outcome.sent_mbps - 12.0).abs() < 1e-9, "{outcome:?}");
    assert!((outcome.slope.value - 0.05).abs() < 1e-9, "{outcome:?}");
    assert!(intervals.pop_complete().is_none());
}

#[test]
fn a_packet_counts_once_and_only_if_it_was_sent() {
    let mut intervals = Intervals::default();
    let numbers = (0..5).chain(7..14);
    for number in numbers {
        send(&mut intervals, number..number + 1);
    }
    for number in (0..10).chain(0..10) {
        ack(&mut intervals, number);
        intervals.on_lost(&LostPacket { number, sent: Time::ZERO, bytes: 1500 });
    }
    let (_, outcome) = intervals.pop_complete().expect("all are settled");
    assert_eq!((outcome.packets, outcome.lost), (8, 0), "5 and 6 were never sent");
}

#[test]
fn late_packet_does_not_count_as_lost_while_its_interval_waits() {
    let mut intervals = Intervals::default();
    send(&mut intervals, 0..11);
    (0..9).for_each(|number| ack(&mut intervals, number));
    let late = LostPacket { number: 3, sent: sent(3).time, bytes: 1500 };
    intervals.on_spurious_loss(late.number);
    assert_eq!(intervals.waiting[0].lost, 0, "nothing was lost that could be undone");
    intervals.on_lost(&LostPacket { number: 9, sent: sent(9).time, bytes: 1500 });
    assert_eq!(intervals.waiting[0].lost, 1);
    intervals.on_spurious_loss(9);
    let (_, outcome) = intervals.pop_complete().expect("all are settled");
    assert_eq!((outcome.packets, outcome.lost), (10, 0));
    intervals.on_spurious_loss(9);
    assert!(intervals.pop_complete().is_none(), "its interval was judged");
}

#[test]
fn memory_of_judged_intervals_is_used_again() {
    let mut intervals = Intervals::default();
    for number in 0..1000 {
        send(&mut intervals, number..number + 1);
        ack(&mut intervals, number);
        while intervals.pop_complete().is_some() {}
    }
    assert!(intervals.spare.len() <= 2, "{}", intervals.spare.len());
}

#[test]
fn wait_of_an_interval_without_feedback_is_known_and_memory_is_bounded() {
    let mut intervals = Intervals::default();
    send(&mut intervals, 0..1000);
    assert!(intervals.waiting.len() <= MAX_WAITING_INTERVALS);
    let now = sent(1000).time;
    // The oldest of sixteen intervals of 10 ms, of which the last is open, ended at 850 ms.
    assert_eq!(intervals.longest_wait(now), Duration::from_millis(150));
}

#[test]
fn jump_in_packet_numbers_costs_no_memory() {
    let mut intervals = Intervals::default();
    send(&mut intervals, 0..3);
    let much_later = SentPacket { number: 1 << 60, ..sent(3) };
    intervals.close_if_due(&much_later);
    assert!(!intervals.is_open());
}
