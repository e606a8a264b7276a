use super::*;

const RTT: Duration = Duration::from_millis(30);

/// One packet of 1500 bytes a millisecond is 12 Mbit/s.
fn sent(number: u64) -> SentPacket {
    SentPacket {
        number,
        time: Time::from_nanos(number * 1_000_000),
        bytes: 1500,
        prior_in_flight_bytes: 0,
        has_data: true,
    }
}

fn send(epochs: &mut Epochs, numbers: std::ops::Range<u64>, decision: u64) {
    let extent = EpochExtent { duration: Duration::from_millis(50), packets: 2 };
    for number in numbers {
        epochs.on_sent(&sent(number), decision, Bandwidth::from_mbps(12.0), extent);
    }
}

fn ack(epochs: &mut Epochs, number: u64, rtt: Duration) {
    let sent = sent(number).time;
    let acked = AckedPacket { number, sent, bytes: 1500 };
    epochs.on_acked(sent + rtt, &acked, true);
}

#[test]
fn it_measures_rate_mean_rtt_and_loss_by_packet_number() {
    let mut epochs = Epochs::default();
    send(&mut epochs, 0..151, 1);
    for number in (0..50).chain(100..150) {
        ack(&mut epochs, number, RTT);
    }
    let first = epochs.pop_complete().expect("complete");
    assert_eq!((first.packets, first.lost, first.partial), (50, 0, false));
    assert!((first.sent_mbps - 12.0).abs() < 1e-9, "{first:?}");
    assert!((first.stretch.expect("samples") - 1.0).abs() < 1e-9, "{first:?}");
    assert_eq!(first.rtt, Some(RTT));
    assert!(epochs.pop_complete().is_none(), "the second is under way, overtaken or not");

    // Each packet is 0.1 ms later than the one before: received at 10/11 of the rate.
    for number in 50..99 {
        ack(&mut epochs, number, RTT + Duration::from_micros(100) * (number - 49) as u32);
    }
    assert!(epochs.pop_complete().is_none());
    epochs.on_lost(&LostPacket { number: 99, sent: sent(99).time, bytes: 1500 });
    let second = epochs.pop_complete().expect("complete");
    assert_eq!((second.packets, second.lost), (50, 1));
    let stretch = second.stretch.expect("samples");
    assert!((stretch - 10.0 / 11.0).abs() < 1e-9, "a lost last packet moves nothing: {stretch}");
    assert_eq!(second.rtt, Some(RTT + Duration::from_micros(2500)));
}

#[test]
fn one_late_sample_hardly_moves_the_stretch() {
    let mut epochs = Epochs::default();
    send(&mut epochs, 0..51, 1);
    (0..49).for_each(|number| ack(&mut epochs, number, RTT));
    ack(&mut epochs, 49, RTT + Duration::from_millis(1));
    let stretch = epochs.pop_complete().expect("complete").stretch.expect("samples");
    // From the first sample to the last it would be 49/50.
    assert!((0.995..1.0).contains(&stretch), "{stretch}");
}

#[test]
fn epoch_has_two_packets_at_least_and_ends_with_its_decision() {
    let mut epochs = Epochs::default();
    let extent = EpochExtent { duration: Duration::from_millis(50), packets: 2 };
    for n in 0..5 {
        let packet = SentPacket { time: Time::from_nanos(n * 120_000_000), ..sent(n) };
        epochs.on_sent(&packet, 0, Bandwidth::from_mbps(0.1), extent);
    }
    assert_eq!(epochs.waiting.len(), 3);
    assert!(
        (epochs.waiting[0].outcome(Time::from_nanos(240_000_000), None).sent_mbps - 0.1).abs()
            < 1e-9
    );

    let mut epochs = Epochs::default();
    send(&mut epochs, 0..20, 1);
    send(&mut epochs, 20..71, 2);
    (0..70).for_each(|number| ack(&mut epochs, number, RTT));
    let (cut, whole) = (epochs.pop_complete(), epochs.pop_complete());
    assert!(cut.is_some_and(|epoch| epoch.partial && epoch.packets == 20));
    assert!(whole.is_some_and(|epoch| !epoch.partial && epoch.packets == 50));
}

#[test]
fn epoch_is_partial_only_if_missing_data_lowered_its_rate() {
    for (packets, partial) in [(0..50, false), (0..30, true)] {
        let mut epochs = Epochs::default();
        send(&mut epochs, packets.clone(), 1);
        epochs.on_app_limited();
        send(&mut epochs, 50..51, 1);
        packets.for_each(|number| ack(&mut epochs, number, RTT));
        let outcome = epochs.pop_complete().expect("complete");
        assert_eq!(outcome.partial, partial, "{outcome:?}");
    }
}

#[test]
fn a_pause_is_not_part_of_a_rate() {
    let mut epochs = Epochs::default();
    send(&mut epochs, 0..50, 1);
    epochs.on_app_limited();
    send(&mut epochs, 1000..1051, 1);
    (0..50).for_each(|number| ack(&mut epochs, number, RTT));
    for number in 1000..1050 {
        ack(&mut epochs, number, RTT + Duration::from_millis(1) * (number - 1000) as u32);
    }
    epochs.pop_complete().expect("complete");
    let stretch = epochs.pop_complete().expect("complete").stretch.expect("samples");
    assert!((stretch - 0.5).abs() < 1e-9, "{stretch}");
}

#[test]
fn epochs_without_feedback_are_given_up_and_bounded() {
    let mut epochs = Epochs::default();
    send(&mut epochs, 0..100_000, 1);
    assert_eq!(epochs.waiting.len(), MAX_WAITING_EPOCHS);
    epochs.give_up_overdue(sent(100_000).time, Duration::from_millis(500));
    assert!(epochs.waiting.len() <= 12, "{}", epochs.waiting.len());
}
