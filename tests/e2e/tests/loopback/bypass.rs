//! Bypassed flows: their half-closes and resets under timing, and their entries in `/flows`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::{admin, wait};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use socket2::Socket;

use crate::fail_open::{builder, bypassed_flows, goes_direct};

/// Threads with so many flows each, one after the other.
const CLIENTS: usize = 5;
const TURNS: usize = 20;
/// What the destination reads before it resets: the first is less than one turn of the relay.
const READ_BYTES: [usize; 4] = [1, 10_000, 300_000, 2_000_000];

/// Uploads without end, and says how the flow ended.
fn upload(mut flow: Socket) -> io::Result<End> {
    let chunk = [7; 64 << 10];
    flow.set_nonblocking(true)?;
    loop {
        match flow.read(&mut [0; 64]) {
            Ok(0) => return Ok(End::Eof),
            Ok(read) => return Err(io::Error::other(format!("{read} unexpected bytes"))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Ok(End::of(Some(&error))),
        }
        match flow.write(&chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut events =
                    [PollFd::new(flow.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)];
                let timeout = PollTimeout::try_from(tcp::IO_TIMEOUT).map_err(io::Error::other)?;
                if poll(&mut events, timeout)? == 0 {
                    return Ok(End::Never);
                }
            }
            // What a reset says that comes after an end in order (`tcp_reset` in Linux).
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(End::Eof),
            Err(error) => return Ok(End::of(Some(&error))),
        }
    }
}

/// The client's bytes find out first that the destination is gone: what its socket says after that
/// looks like an end in order, and must not be passed on.
#[test]
fn a_destination_that_resets_an_upload_is_never_taken_for_one_that_ends() {
    let mut pair = builder().start();
    pair.server.kill();
    goes_direct(&pair, &Origin::echo());
    let before = bypassed_flows(&pair);
    let origins = READ_BYTES.map(|bytes| {
        Origin::start(move |mut flow| {
            if flow.read_exact(&mut vec![0; bytes]).is_ok() {
                tcp::reset(flow);
            }
        })
    });
    let ends: Vec<End> = std::thread::scope(|scope| {
        let (pair, origins) = (&pair, &origins);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let turn = |turn: usize| {
                        let listener = &pair.listeners[1 + 2 * (turn % 2)];
                        let to = origins[(client + turn) % origins.len()].address();
                        upload(listener.open(&to.to_string()).unwrap()).unwrap()
                    };
                    (0..TURNS).map(turn).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let wrong = ends.iter().filter(|end| **end != End::Reset).count();
    assert_eq!(wrong, 0, "of {} uploads not reset: {ends:?}", ends.len());
    assert_eq!(bypassed_flows(&pair) - before, (CLIENTS * TURNS) as f64);
}

/// The client's flow to `origin` as `/flows` shows it, once that many bytes have come back.
fn shown(pair: &Pair, origin: &Origin, bytes: usize) -> Value {
    let to = origin.address().to_string();
    let find = || {
        let flows = admin::flows(pair.addresses.client_admin);
        let flows = flows["flows"].as_array().cloned().unwrap_or_default();
        let is_it = |flow: &Value| flow["destination"] == *to && flow["bytes_down"] == bytes;
        flows.into_iter().find(|flow| is_it(flow) && flow["rate_mbps"].as_f64() > Some(0.0))
    };
    wait::until(wait::DEFAULT_TIMEOUT, find).unwrap_or_else(|| panic!("{to} is not shown"))
}

#[test]
fn flows_page_lists_bypassed_flows() {
    const BYTES: usize = 5000;
    let mut pair = builder().start();
    let open = |pair: &Pair, listener: usize, origin: &Origin| {
        let mut flow = pair.listeners[listener].open(&origin.address().to_string()).unwrap();
        flow.write_all(&[1; BYTES]).unwrap();
        flow.read_exact(&mut [0; BYTES]).unwrap();
        flow
    };
    let end = |mut flow: Socket| {
        flow.shutdown(Shutdown::Write).unwrap();
        assert_eq!(flow.read(&mut [0]).unwrap(), 0);
    };
    let inside = Origin::echo();
    let in_tunnel = open(&pair, 1, &inside);
    let flow = shown(&pair, &inside, BYTES);
    assert_eq!(flow["bypassed"], false, "{flow}");
    end(in_tunnel);
    pair.server.kill();
    goes_direct(&pair, &Origin::echo());
    for (listener, class) in [(1, "bulk"), (3, "dash")] {
        let origin = Origin::echo();
        let bypassed = open(&pair, listener, &origin);
        let flow = shown(&pair, &origin, BYTES);
        assert_eq!(flow["bypassed"], true, "{flow}");
        assert_eq!(flow["bytes_up"], BYTES, "{flow}");
        assert_eq!(flow["class"], class, "{flow}");
        assert_eq!(flow["state"], "open", "{flow}");
        assert!(flow["age_s"].as_f64() > Some(0.0), "{flow}");
        for of_a_connection in ["connection", "algorithm", "rtt_ms", "cwnd_bytes", "loss"] {
            assert_eq!(flow[of_a_connection], Value::Null, "{flow}");
        }
        let client = match listener {
            1 => bypassed.local_addr().unwrap().as_socket().unwrap().to_string(),
            _ => "192.0.2.9:40000".to_owned(),
        };
        assert_eq!(flow["client"], *client, "{flow}");
        end(bypassed);
    }
    wait::for_true("no flow is shown", wait::DEFAULT_TIMEOUT, || {
        admin::flows(pair.addresses.client_admin)["flows"].as_array().is_some_and(Vec::is_empty)
    });
}
