//! Whether a server allows and reaches the destinations that a client's configuration names.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use millrace_config::Protocol;
use millrace_tunnel::event_loop::streams::fields_of;
use millrace_tunnel::transport::TunnelConfig;
use millrace_wire::h3_connect::{Carries, ConnectRequest, Response, parse_response};
use millrace_wire::repair::RepairMethods;
use millrace_wire::{ConnectFailure, Destination};
use quiche::h3::Header;

use super::dialled::Dialled;
use super::report::Report;

/// How long the answer for a destination may take: more than a server by default needs for a name and a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(12);

/// A destination to which a listener sends all its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedDestination {
    /// The listener, as `listen[0]`.
    pub listener: String,
    /// The protocol of its flows.
    pub protocol: Protocol,
    /// Where they go.
    pub destination: Destination,
}

/// Asks a server to connect each destination. `authority` is the server's name and port.
pub(super) fn check(
    report: &mut Report,
    dialled: &mut Dialled,
    config: &TunnelConfig,
    (server, authority): (SocketAddr, &str),
    destinations: &[FixedDestination],
) -> io::Result<()> {
    let mut ask = |it: &FixedDestination| {
        dialled.request(&request(it.protocol, &it.destination, authority), false)
    };
    let streams: Vec<_> = destinations.iter().map(&mut ask).collect();
    let open: Vec<_> = streams.iter().copied().flatten().collect();
    dialled.wait_for_answers(config, &open, CONNECT_TIMEOUT)?;
    for (destination, stream) in destinations.iter().zip(streams) {
        let answer = stream.and_then(|stream| dialled.answer(stream));
        report_answer(report, server, destination, answer);
    }
    Ok(())
}

/// Reports what a server answered for a destination; `None` if it did not.
pub(super) fn report_answer(
    report: &mut Report,
    server: SocketAddr,
    FixedDestination { listener, protocol, destination }: &FixedDestination,
    answer: Option<&[Header]>,
) {
    let check = format!("{listener}.destination {destination}");
    let Some(answer) = answer else {
        let found = format!("{server} does not answer a request for it");
        return report.skip(&check, found, "see the server's log");
    };
    match parse_response(fields_of(answer)) {
        Ok(Response::Established) => report.ok(&check, established(server, *protocol)),
        Ok(Response::Failed { failure, .. }) => refused(report, &check, server, failure),
        Ok(Response::Interim) | Err(_) => {
            let found = format!("{server} gives an answer of an unknown kind");
            report.skip(&check, found, "use a millrace-server there");
        }
    }
}

fn request(protocol: Protocol, destination: &Destination, authority: &str) -> Vec<Header> {
    let carries = match protocol {
        Protocol::Tcp => Carries::Tcp,
        Protocol::Udp => Carries::Udp {
            proxy: authority.to_owned(),
            rtsp_stream: None,
            repair: RepairMethods::default(),
        },
    };
    let request = ConnectRequest {
        carries,
        destination: destination.clone(),
        class: None,
        congestion_control: None,
        client_address: None,
        trace_parent: None,
    };
    let header = |(name, value): (&str, String)| Header::new(name.as_bytes(), value.as_bytes());
    request.fields().into_iter().map(header).collect()
}

fn established(server: SocketAddr, protocol: Protocol) -> String {
    match protocol {
        Protocol::Tcp => format!("{server} connects to it"),
        Protocol::Udp => format!("{server} allows it; whether it answers can't be seen"),
    }
}

fn refused(report: &mut Report, check: &str, server: SocketAddr, failure: ConnectFailure) {
    match failure {
        ConnectFailure::Forbidden => report.fail(
            check,
            format!("{server} does not allow it"),
            "add it to [[destinations.allow]] of the server, with its port and protocol; addresses of the \
             server itself and special ranges, such as 127.0.0.0/8, need an entry of their own",
        ),
        ConnectFailure::Refused
        | ConnectFailure::NetworkUnreachable
        | ConnectFailure::HostUnreachable
        | ConnectFailure::TimedOut
        | ConnectFailure::NameNotResolved => report.fail(
            check,
            format!("{server} can't connect to it: {failure}"),
            "start the origin, or correct the destination: it must be reachable from the server",
        ),
        _ => report.warn(
            check,
            format!("{server} does not connect to it now: {failure}"),
            "try again later; the server's log says which limit has been reached",
        ),
    }
}
