use super::*;
use crate::address_sharing::AddressSharing;
use crate::udp::{PortOptions, RecvBuffers};

fn port() -> UdpPort {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    UdpPort::bind(any, PortOptions { sharing: AddressSharing::Alone, mark: None })
        .expect("loopback")
}

fn conn(slot: usize) -> ConnId {
    ConnId { slot, serial: slot as u64 }
}

fn to(destination: &UdpPort) -> PacketPath {
    PacketPath { to: destination.local(), from: SocketAddr::from(([0, 0, 0, 0], 0)) }
}

/// Adds a packet of `len` bytes that begins with its connection's slot and a number.
fn add(outbox: &mut Outbox, slot: usize, path: PacketPath, len: usize, number: u8) {
    let room = outbox.room(len).expect("the outbox has room");
    room[..len].fill(0);
    (room[0], room[1]) = (slot as u8, number);
    outbox.add(conn(slot), path, len, 64);
}

/// Slots, numbers and lengths of `count` packets in the order of their arrival.
fn receive(port: &UdpPort, count: usize) -> Vec<(u8, u8, usize)> {
    let (mut buffers, mut seen) = (RecvBuffers::default(), Vec::new());
    while seen.len() < count {
        port.receive(&mut buffers, |_, _, packet| seen.push((packet[0], packet[1], packet.len())))
            .expect("receive");
    }
    seen
}

fn messages(outbox: &Outbox) -> Vec<usize> {
    outbox.messages.iter().map(|message| message.segments).collect()
}

#[test]
fn packets_of_equal_size_share_a_message_across_connections() {
    let (sender, a, b) = (port(), port(), port());
    let mut outbox = Outbox::default();
    for slot in 1..=4 {
        add(&mut outbox, slot, to(if slot % 2 == 0 { &a } else { &b }), 1200, 0);
    }
    add(&mut outbox, 5, to(&a), 40, 0);
    assert_eq!(messages(&outbox), [2, 2, 1]);
    let sent = outbox.send(&sender);
    assert_eq!(sent.iter().map(|sent| sent.conn.slot).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(outbox.is_empty());
    assert_eq!(receive(&a, 3), [(2, 0, 1200), (4, 0, 1200), (5, 0, 40)]);
    assert_eq!(receive(&b, 2), [(1, 0, 1200), (3, 0, 1200)]);
}

#[test]
fn a_connections_packets_stay_in_order() {
    let (sender, receiver) = (port(), port());
    let mut outbox = Outbox::default();
    add(&mut outbox, 1, to(&receiver), 40, 0);
    add(&mut outbox, 2, to(&receiver), 1200, 0);
    // Behind its long packet, not beside the other short one.
    add(&mut outbox, 2, to(&receiver), 40, 1);
    add(&mut outbox, 1, to(&receiver), 1200, 1);
    add(&mut outbox, 2, to(&receiver), 1200, 2);
    outbox.send(&sender);
    let seen = receive(&receiver, 5);
    for slot in [1, 2] {
        let numbers = seen.iter().filter(|(from, ..)| *from == slot).map(|(_, number, _)| *number);
        assert!(numbers.is_sorted(), "{seen:?}");
    }
}

#[test]
fn a_shorter_packet_ends_the_message_of_its_own_connection_only() {
    let receiver = port();
    let mut outbox = Outbox::default();
    add(&mut outbox, 1, to(&receiver), 1200, 0);
    add(&mut outbox, 1, to(&receiver), 300, 1);
    assert_eq!(messages(&outbox), [2]);
    add(&mut outbox, 2, to(&receiver), 1200, 0);
    add(&mut outbox, 3, to(&receiver), 1200, 0);
    add(&mut outbox, 3, to(&receiver), 300, 1);
    assert_eq!(messages(&outbox), [2, 2, 1]);
}

#[test]
fn it_is_full_with_one_full_message() {
    let receiver = port();
    let mut outbox = Outbox::default();
    let mut packets = 0;
    while outbox.room(1452).is_some() {
        add(&mut outbox, packets % 3, to(&receiver), 1452, 0);
        packets += 1;
    }
    assert_eq!((packets, messages(&outbox)), (SEND_MESSAGE_BYTES / 1452, vec![packets]));
}

#[test]
fn it_is_full_with_many_small_messages() {
    let receivers: Vec<_> = (0..MAX_MESSAGES).map(|_| port()).collect();
    let mut outbox = Outbox::default();
    for (slot, receiver) in receivers.iter().enumerate() {
        add(&mut outbox, slot, to(receiver), 100, 0);
    }
    assert!(outbox.room(100).is_none());
    assert_eq!(outbox.send(&port()).len(), MAX_MESSAGES);
    assert!(outbox.room(100).is_some());
    for receiver in &receivers {
        assert_eq!(receive(receiver, 1).len(), 1);
    }
}

#[test]
fn refused_packets_are_their_connections_and_others_leave() {
    let (sender, receiver) = (port(), port());
    let mut outbox = Outbox::default();
    let unreachable = PacketPath { to: SocketAddr::from(([127, 0, 0, 1], 0)), ..to(&receiver) };
    add(&mut outbox, 1, to(&receiver), 100, 0);
    // Port 0 is no destination: EINVAL.
    add(&mut outbox, 2, unreachable, 100, 0);
    add(&mut outbox, 3, to(&receiver), 200, 0);
    let sent = outbox.send(&sender);
    let refused: Vec<_> = sent.iter().map(|sent| (sent.conn.slot, sent.refused)).collect();
    assert_eq!(refused, [(1, None), (2, Some((unreachable, 100))), (3, None)]);
    assert_eq!(receive(&receiver, 2), [(1, 0, 100), (3, 0, 200)]);
}
