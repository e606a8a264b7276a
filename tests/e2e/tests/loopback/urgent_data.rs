//! TCP urgent data has its place in the stream (RFC 6093): all bytes arrive, in order.

use std::io::{Read, Write};
use std::sync::mpsc;

use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};
use socket2::Socket;

use crate::fail_open::{builder, goes_direct};

const SENT: &[u8] = b"abcdefg";

/// Sends [`SENT`] with the fourth byte urgent.
fn send_urgent(mut to: &Socket) {
    to.write_all(&SENT[..3]).unwrap();
    assert_eq!(to.send_out_of_band(&SENT[3..4]).unwrap(), 1);
    to.write_all(&SENT[4..]).unwrap();
    to.shutdown(std::net::Shutdown::Write).unwrap();
}

/// An origin that says what it got.
fn receiver() -> (Origin, mpsc::Receiver<(Vec<u8>, End)>) {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |stream| {
        stream.set_out_of_band_inline(true).unwrap();
        tell.send(tcp::drain(&stream)).unwrap();
    });
    (origin, told)
}

fn arrives_up(listener: &TestListener) {
    let (origin, told) = receiver();
    let flow = listener.open(&origin.address().to_string()).unwrap();
    send_urgent(&flow);
    let got = told.recv_timeout(tcp::IO_TIMEOUT).unwrap();
    assert_eq!(got, (SENT.to_vec(), End::Eof), "{listener:?}");
}

fn arrives_down(listener: &TestListener) {
    let origin = Origin::start(|mut stream| {
        send_urgent(&stream);
        stream.read_to_end(&mut Vec::new()).ok();
    });
    let flow = listener.open(&origin.address().to_string()).unwrap();
    assert_eq!(tcp::drain(&flow), (SENT.to_vec(), End::Eof), "{listener:?}");
}

#[test]
fn urgent_data_arrives_in_order_in_both_directions() {
    let pair = Pair::builder().start();
    for listener in &pair.listeners[1..] {
        arrives_up(listener);
        arrives_down(listener);
    }
}

#[test]
fn urgent_data_arrives_in_order_on_bypassed_flows() {
    let mut pair = builder().start();
    pair.server.kill();
    goes_direct(&pair, &Origin::echo());
    for listener in [pair.http(), &pair.listeners[3]] {
        arrives_up(listener);
        arrives_down(listener);
    }
}
