//! A reset on one side is a reset on the other, never an end in order.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;

use millrace_e2e::data;
use millrace_e2e::doors::Door;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};

/// Unix sockets have no reset to pass on; those on TCP do.
fn tcp_doors(pair: &Pair) -> impl Iterator<Item = &Door> {
    pair.doors.iter().filter(|door| !matches!(door, Door::ProxyUnix(_)))
}

/// An origin that says how each of its connections ended.
fn watching_origin() -> (Origin, mpsc::Receiver<End>) {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        stream.write_all(b"x").ok();
        let (_, error) = data::receive_until_error(&stream);
        tell.send(End::of(error.as_ref())).unwrap();
    });
    (origin, told)
}

#[test]
fn a_reset_by_the_client_reaches_the_origin() {
    let (origin, told) = watching_origin();
    let pair = Pair::builder().fixed(origin.address()).start();
    for door in tcp_doors(&pair) {
        let mut flow = door.open(&origin.address().to_string()).unwrap();
        flow.read_exact(&mut [0]).unwrap();
        tcp::reset(flow);
        assert_eq!(told.recv_timeout(tcp::PATIENCE).unwrap(), End::Reset, "{door:?}");
        // That the test can tell: an end in order arrives as one.
        let mut flow = door.open(&origin.address().to_string()).unwrap();
        flow.read_exact(&mut [0]).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        assert_eq!(told.recv_timeout(tcp::PATIENCE).unwrap(), End::Eof, "{door:?}");
    }
}

#[test]
fn a_reset_by_the_client_in_mid_upload_reaches_the_origin() {
    let (origin, told) = watching_origin();
    let pair = Pair::builder().fixed(origin.address()).start();
    for door in tcp_doors(&pair) {
        let flow = door.open(&origin.address().to_string()).unwrap();
        data::send(&flow, 8, 5_000_000).unwrap();
        tcp::reset(flow);
        assert_eq!(told.recv_timeout(tcp::PATIENCE).unwrap(), End::Reset, "{door:?}");
    }
}

/// A client that closes with unread data resets, as kernels do.
#[test]
fn a_client_that_leaves_a_download_resets_the_origin() {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |stream| {
        let error = data::send(&stream, 9, 1 << 30).unwrap_err();
        tell.send(End::of(Some(&error))).unwrap();
    });
    let pair = Pair::builder().fixed(origin.address()).start();
    for door in &pair.doors {
        let mut flow = door.open(&origin.address().to_string()).unwrap();
        flow.read_exact(&mut [0; 1000]).unwrap();
        drop(flow);
        assert_eq!(told.recv_timeout(tcp::PATIENCE).unwrap(), End::Reset, "{door:?}");
    }
}

#[test]
fn a_reset_by_the_origin_reaches_the_client() {
    let origin = Origin::start(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        tcp::reset(stream);
    });
    let pair = Pair::builder().fixed(origin.address()).start();
    for door in tcp_doors(&pair) {
        let mut flow = door.open(&origin.address().to_string()).unwrap();
        flow.write_all(b"x").unwrap();
        assert_eq!(tcp::drain(&flow), (vec![], End::Reset), "{door:?}");
    }
}

/// The client has ended its direction already and waits for an answer, which is cut off: that must
/// not look like the answer's end.
#[test]
fn an_answer_cut_off_by_a_reset_is_not_taken_for_whole() {
    let origin = Origin::start(|mut stream| {
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        data::send(&stream, 10, 3_000_000).unwrap();
        tcp::reset(stream);
    });
    let pair = Pair::builder().fixed(origin.address()).start();
    for door in tcp_doors(&pair) {
        let flow = door.open(&origin.address().to_string()).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        let (_, error) = data::receive_until_error(&flow);
        assert_eq!(End::of(error.as_ref()), End::Reset, "{door:?}");
    }
}
