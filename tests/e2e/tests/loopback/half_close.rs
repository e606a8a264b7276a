//! One direction ends, the other goes on, for as long as it wants.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;
use std::time::Duration;

use millrace_e2e::data;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};

/// More than all buffers on the way together hold in their idle state.
const BYTES: u64 = 24 << 20;

/// Between one side's end and the other's first byte.
const PAUSE: Duration = Duration::from_millis(300);

#[test]
fn a_client_that_has_ended_still_gets_the_whole_answer() {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |stream| {
        tell.send(data::receive(&stream)).unwrap();
        std::thread::sleep(PAUSE);
        data::send(&stream, 5, BYTES).unwrap();
    });
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in &pair.listeners {
        let flow = listener.open(&origin.address().to_string()).unwrap();
        let sent = data::send(&flow, 6, 100_000).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        // The origin hears of the end while the answer is still to come.
        assert_eq!(told.recv_timeout(tcp::IO_TIMEOUT).unwrap().unwrap(), sent, "{listener:?}");
        let received = data::receive(&flow).unwrap();
        assert_eq!(received, data::send(std::io::sink(), 5, BYTES).unwrap(), "{listener:?}");
    }
}

#[test]
fn an_origin_that_has_ended_still_gets_the_whole_request() {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        stream.write_all(b"that is all").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        tell.send(data::receive(&stream)).unwrap();
    });
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in &pair.listeners {
        let flow = listener.open(&origin.address().to_string()).unwrap();
        // The client hears of the end before it has sent anything.
        assert_eq!(tcp::drain(&flow), (b"that is all".to_vec(), End::Eof), "{listener:?}");
        std::thread::sleep(PAUSE);
        let sent = data::send(&flow, 7, BYTES).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        assert_eq!(told.recv_timeout(tcp::IO_TIMEOUT).unwrap().unwrap(), sent, "{listener:?}");
    }
}

/// The end arrives with the last byte: nothing waits for a time-out or for more data.
#[test]
fn both_ends_close_at_once() {
    let origin = Origin::start(|mut stream| {
        stream.write_all(b"bye").unwrap();
        drop(stream);
    });
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in &pair.listeners {
        let mut flow = listener.open(&origin.address().to_string()).unwrap();
        flow.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut answer = String::new();
        flow.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "bye", "{listener:?}");
    }
}

/// Silence of the other direction after one has ended is bounded by `half_close_timeout_s`.
#[test]
fn an_abandoned_half_is_reset() {
    let origin = Origin::start(|mut stream| {
        // Reads to the end and never says anything.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
        std::thread::sleep(tcp::IO_TIMEOUT);
    });
    let pair = Pair::builder().both("limits.half_close_timeout_s", 1).start();
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    flow.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (vec![], End::Reset));
}
