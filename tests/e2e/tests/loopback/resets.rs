//! A reset on one side is a reset on the other, never an end in order.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::data;
use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;

/// Unix sockets have no reset to pass on; those on TCP do.
fn tcp_listeners(pair: &Pair) -> impl Iterator<Item = &TestListener> {
    pair.listeners.iter().filter(|listener| !matches!(listener, TestListener::ProxyUnix(_)))
}

/// An origin that says how each of its connections ended.
fn watching_origin() -> (Origin, mpsc::Receiver<End>) {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        // A reset that came before is told to the first call only.
        let error = match stream.write_all(b"x") {
            Ok(()) => data::receive_until_error(&stream).1,
            Err(error) => Some(error),
        };
        tell.send(End::of(error.as_ref())).unwrap();
    });
    (origin, told)
}

#[test]
fn a_reset_by_the_client_reaches_the_origin() {
    let (origin, told) = watching_origin();
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in tcp_listeners(&pair) {
        let mut flow = listener.open(&origin.address().to_string()).unwrap();
        flow.read_exact(&mut [0]).unwrap();
        tcp::reset(flow);
        assert_eq!(told.recv_timeout(tcp::IO_TIMEOUT).unwrap(), End::Reset, "{listener:?}");
        // That the test can tell: an end in order arrives as one.
        let mut flow = listener.open(&origin.address().to_string()).unwrap();
        flow.read_exact(&mut [0]).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        assert_eq!(told.recv_timeout(tcp::IO_TIMEOUT).unwrap(), End::Eof, "{listener:?}");
    }
}

#[test]
fn a_reset_by_the_client_in_mid_upload_reaches_the_origin() {
    let (origin, told) = watching_origin();
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in tcp_listeners(&pair) {
        let flow = listener.open(&origin.address().to_string()).unwrap();
        data::send(&flow, 8, 5_000_000).unwrap();
        tcp::reset(flow);
        assert_eq!(told.recv_timeout(tcp::IO_TIMEOUT).unwrap(), End::Reset, "{listener:?}");
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
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in &pair.listeners {
        let mut flow = listener.open(&origin.address().to_string()).unwrap();
        flow.read_exact(&mut [0; 1000]).unwrap();
        drop(flow);
        assert_eq!(told.recv_timeout(tcp::IO_TIMEOUT).unwrap(), End::Reset, "{listener:?}");
    }
}

#[test]
fn a_reset_by_the_origin_reaches_the_client() {
    let origin = Origin::start(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        tcp::reset(stream);
    });
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in tcp_listeners(&pair) {
        let mut flow = listener.open(&origin.address().to_string()).unwrap();
        flow.write_all(b"x").unwrap();
        assert_eq!(tcp::drain(&flow), (vec![], End::Reset), "{listener:?}");
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
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in tcp_listeners(&pair) {
        let flow = listener.open(&origin.address().to_string()).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        let (_, error) = data::receive_until_error(&flow);
        assert_eq!(End::of(error.as_ref()), End::Reset, "{listener:?}");
    }
}

/// The reset meets the client's own end on its way: many times, since it is a matter of timing.
#[test]
fn a_reset_after_the_last_byte_is_no_end_in_order() {
    const BYTES: usize = 2700;
    let origin = Origin::start(|mut stream| {
        if stream.read_exact(&mut [0; BYTES]).is_ok() {
            tcp::reset(stream);
        }
    });
    let relay = RelayOptions { one_way: std::time::Duration::from_millis(2), ..Default::default() };
    let pair = Pair::builder().static_destination(origin.address()).relay(relay).start();
    std::thread::scope(|scope| {
        for listener in (0..6).flat_map(|_| tcp_listeners(&pair)) {
            let origin = &origin;
            scope.spawn(move || {
                for n in 0..60 {
                    let mut flow = listener.open(&origin.address().to_string()).unwrap();
                    flow.write_all(&[7; BYTES]).unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(n * 100));
                    flow.shutdown(Shutdown::Write).ok();
                    assert_eq!(tcp::drain(&flow), (vec![], End::Reset), "{listener:?}");
                }
            });
        }
    });
}

/// The client ends an upload in order, and resets while most of it waits at the server for an origin
/// that reads nothing: what waits is lost, so that the origin must not see an end in order.
#[test]
fn a_reset_after_the_end_of_an_upload_that_waits_reaches_the_origin() {
    const BYTES: u64 = 24_000_000;
    let (told, tell) = (mpsc::channel(), mpsc::channel());
    let (go, gone) = (told.0, std::sync::Mutex::new(told.1));
    let (say, said) = tell;
    let origin = Origin::start(move |stream| {
        gone.lock().unwrap().recv().unwrap();
        let (sum, error) = data::receive_until_error(&stream);
        say.send((sum.bytes, End::of(error.as_ref()))).unwrap();
    });
    let pair = Pair::builder()
        .static_destination(origin.address())
        .both("tunnel.initial_window_bytes", 33_554_432)
        .start();
    let active = |admin| Metrics::fetch(admin).sum("millrace_flows_active", &[]);
    for listener in tcp_listeners(&pair) {
        let flow = listener.open(&origin.address().to_string()).unwrap();
        data::send(&flow, 11, BYTES).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        wait::for_true("the end is on its way", wait::DEFAULT_TIMEOUT, || {
            let flows = admin::flows(pair.addresses.server_admin).to_string();
            flows.contains("client_ended") || flows.contains("open")
        });
        tcp::reset(flow);
        wait::for_true("the client has no flow", wait::DEFAULT_TIMEOUT, || {
            active(pair.addresses.client_admin) == 0.0
        });
        // It may take until the origin reads, but not longer than a round trip.
        wait::until(std::time::Duration::from_secs(1), || {
            (active(pair.addresses.server_admin) == 0.0).then_some(())
        });
        go.send(()).unwrap();
        let (bytes, end) = said.recv_timeout(tcp::IO_TIMEOUT).unwrap();
        assert!(bytes < BYTES, "nothing had to wait");
        assert_eq!(end, End::Reset, "{listener:?}: {bytes} of {BYTES} bytes");
    }
}
