//! A real handshake with a server, as the client makes it, and checks of the path.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use boring::x509::X509;
use millrace_config::{Host, HostPort};
use quiche::h3::Header;
use socket2::SockRef;

use super::destinations::{self, FixedDestination};
use super::dialled::Dialled;
use super::report::Report;
use millrace_tunnel::close_reason::{close_reason, handshake_failure, peer_alert};
use millrace_tunnel::conn::key_exchange;
use millrace_tunnel::credentials::alternative_names;
use millrace_tunnel::datagrams::offered;
use millrace_tunnel::dial::interleave;
use millrace_tunnel::event_loop::core::{CONN_ID_BYTES, open_connection};
use millrace_tunnel::event_loop::streams::fields_of;
use millrace_tunnel::metrics::HandshakeFailure;
use millrace_tunnel::probe::probe_fields;
use millrace_tunnel::resolve::{ResolveError, Resolver};
use millrace_tunnel::transport::TunnelConfig;
use millrace_wire::h3_connect::follows_rtsp;

/// What QUIC needs (RFC 9000, Section 14), IPv6 and UDP headers included.
const MIN_MTU_BYTES: u32 = 1200 + 48;
/// How long the search for the largest packet of the path may take.
const MTU_SEARCH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the answer to a health probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A server, and what a client requires of it.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeTarget<'a> {
    /// Where it is.
    pub server: &'a HostPort,
    /// The name that its certificate must be for.
    pub server_name: &'a Host,
    /// SO_MARK of the socket.
    pub mark: Option<u32>,
    /// Time for the handshake.
    pub timeout: Duration,
    /// Whether it has to carry UDP flows.
    pub udp: bool,
    /// Whether it should follow RTSP.
    pub rtsp: bool,
    /// The destinations to ask it for.
    pub destinations: &'a [FixedDestination],
}

/// Resolves a server as the client does, and makes a connection to each of its addresses, in the
/// client's order, until one succeeds.
pub fn reach(
    report: &mut Report,
    mut config: TunnelConfig,
    resolver: &Resolver,
    wanted: HandshakeTarget<'_>,
) {
    let check = format!("server {}", wanted.server);
    let addresses = match resolve(resolver, wanted.server) {
        Ok(addresses) => addresses,
        Err(error) => {
            let remedy = "correct tunnel.servers, or look at /etc/resolv.conf and `getent hosts`";
            return report.fail(&check, format!("its name has no address: {error}"), remedy);
        }
    };
    let mut silent = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let mut found = Report::default();
        let reached =
            attempt(&mut found, &check, &mut config, *address, wanted).unwrap_or_else(|error| {
                let remedy = format!("`ip route get {}` shows what is missing", address.ip());
                found.fail(&check, format!("{address}: {error}"), remedy);
                false
            });
        if reached || index + 1 == addresses.len() {
            if reached && !silent.is_empty() {
                warn_of_silent(report, &check, &silent);
            }
            report.findings.append(&mut found.findings);
            return;
        }
        silent.push(*address);
    }
}

/// Addresses of a server that did not answer, while another one of it did.
fn warn_of_silent(report: &mut Report, check: &str, silent: &[SocketAddr]) {
    let list: Vec<_> = silent.iter().map(ToString::to_string).collect();
    let remedy = "it works: the client tries the next address after 250 ms; correct the name's \
                  records, or let UDP pass to this address too";
    report.warn(check, format!("no connection to {}", list.join(", ")), remedy);
}

fn resolve(resolver: &Resolver, server: &HostPort) -> Result<Vec<SocketAddr>, ResolveError> {
    match &server.host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, server.port)]),
        Host::Name(name) => {
            let resolved = resolver.resolve_blocking(name, server.port)?;
            Ok(interleave(&resolved.addresses).into())
        }
    }
}

/// Makes a handshake with one address. Returns whether it was reached.
fn attempt(
    report: &mut Report,
    check: &str,
    config: &mut TunnelConfig,
    server: SocketAddr,
    wanted: HandshakeTarget<'_>,
) -> io::Result<bool> {
    let HandshakeTarget { server_name, mark, timeout, .. } = wanted;
    let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    if let Some(mark) = mark {
        // A missing privilege is reported by the check of marks.
        let _ = SockRef::from(&socket).set_mark(mark);
    }
    socket.connect(server)?;
    route_mtu(report, &socket, server);
    let mut cid = [0; CONN_ID_BYTES];
    boring::rand::rand_bytes(&mut cid).map_err(io::Error::other)?;
    let local = socket.local_addr()?;
    let quic = open_connection(&mut config.quic, server_name, &cid, local, server)
        .map_err(io::Error::other)?;
    let mut dialled = Dialled::new(socket, quic);
    let started = Instant::now();
    dialled.drive(config, started + timeout, Dialled::is_taken)?;
    if !dialled.is_taken() {
        dialled.report_failure(report, check, server, server_name);
        return Ok(false);
    }
    let rtt = dialled.quic.path_stats().find(|path| path.active).map(|path| path.rtt);
    let rtt_ms = rtt.unwrap_or_default().as_secs_f64() * 1e3;
    report.ok(check, format!("{server} took our certificate; round trip {rtt_ms:.1} ms"));
    dialled.report_key_exchange(report);
    if wanted.udp {
        dialled.report_udp(report, server);
    }
    if wanted.rtsp || !wanted.destinations.is_empty() {
        requests(report, &mut dialled, config, server, wanted)?;
    }
    let most = usize::from(config.max_udp_payload_bytes);
    dialled.drive(config, Instant::now() + MTU_SEARCH_TIMEOUT, |it| it.largest() >= most)?;
    let largest = dialled.largest();
    if largest >= most {
        report.ok("path MTU", format!("packets of {largest} bytes arrive"));
    } else {
        report.warn(
            "path MTU",
            format!("packets of {largest} bytes arrive, those of {most} do not"),
            "it works; smaller packets cost processor time. Look for a tunnel or VPN on the way, \
             and whether ICMP \"fragmentation needed\" is filtered",
        );
    }
    let _ = dialled.quic.close(true, 0x100, b"");
    dialled.send();
    Ok(true)
}

/// Sends a health probe, and requests for destinations to a server that answers it.
fn requests(
    report: &mut Report,
    dialled: &mut Dialled,
    config: &TunnelConfig,
    server: SocketAddr,
    wanted: HandshakeTarget<'_>,
) -> io::Result<()> {
    let authority = HostPort { host: wanted.server_name.clone(), port: server.port() }.to_string();
    let probe = dialled.request(&probe_fields(&authority, 0), true);
    dialled.wait_for_answers(config, probe.as_slice(), PROBE_TIMEOUT)?;
    let answer = probe.and_then(|stream| dialled.answer(stream));
    if wanted.rtsp {
        report_rtsp(report, server, answer);
    }
    if answer.is_some() {
        let at = (server, authority.as_str());
        return destinations::check(report, dialled, config, at, wanted.destinations);
    }
    for destination in wanted.destinations {
        destinations::report_answer(report, server, destination, None);
    }
    Ok(())
}

/// Whether the server follows RTSP: its answer to a health probe says so.
fn report_rtsp(report: &mut Report, server: SocketAddr, answer: Option<&[Header]>) {
    let check = "RTP over UDP";
    let Some(fields) = answer else {
        let remedy = "see its log; `millrace-server doctor` there checks it too";
        return report.skip(
            check,
            format!("{server} does not say whether it follows RTSP"),
            remedy,
        );
    };
    if follows_rtsp(fields_of(fields)) {
        return report.ok(check, format!("{server} follows RTSP"));
    }
    report.warn(
        check,
        format!(
            "{server} does not follow RTSP: SETUP of media over UDP is refused with 461, and players use \
             the RTSP connection"
        ),
        "use a millrace-server of this version there, with limits.max_rtsp_port_pairs above 0",
    );
}

/// What the route's first link carries.
fn route_mtu(report: &mut Report, socket: &UdpSocket, server: SocketAddr) {
    let (level, name) = match server {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let (mut mtu, mut length) = (0_u32, size_of::<u32>() as libc::socklen_t);
    // SAFETY: the option writes one int into a variable of that size.
    let result = unsafe {
        let (value, fd) = ((&raw mut mtu).cast(), socket.as_raw_fd());
        libc::getsockopt(fd, level, name, value, &raw mut length)
    };
    if result != 0 {
        return report.skip("MTU", "the kernel does not tell", "`ip route get` shows it");
    }
    if mtu >= MIN_MTU_BYTES {
        report.ok("MTU", format!("{mtu} bytes on the way out to {}", server.ip()));
    } else {
        let found =
            format!("{mtu} bytes on the way out to {}; QUIC needs {MIN_MTU_BYTES}", server.ip());
        report.fail("MTU", found, "raise the MTU of that interface or route (`ip link set mtu`)");
    }
}

/// The alert `unknown_ca` (RFC 8446, Section 6.2).
const UNKNOWN_CA: u64 = 48;

/// What to do after an alert of the server.
fn alert_remedy(alert: u64) -> &'static str {
    match alert {
        40 | 43 => {
            "the certificates of both ends must have ECDSA keys on P-256 or P-384, or RSA keys; \
             `millrace-server check` and `millrace-client check` say which has not"
        }
        44 => {
            "the server's deny-list (tunnel.denied_clients) has this client's serial number or name"
        }
        45 => {
            "look at both clocks (`timedatectl`); if they are right, renew this client's certificate: \
             `millrace-server certificates --renew`"
        }
        _ => {
            "the server did not accept our certificate: its log says why; its client_ca must be \
             the authority of our certificate"
        }
    }
}

impl Dialled {
    /// What CONNECT-UDP needs: see [`millrace_tunnel::datagrams::offered`].
    fn report_udp(&self, report: &mut Report, server: SocketAddr) {
        let Some(h3) = &self.h3 else { return };
        let needed = [
            ("extended CONNECT (RFC 9220)", h3.extended_connect_enabled_by_peer()),
            ("HTTP datagrams (RFC 9297)", h3.dgram_enabled_by_peer(&self.quic)),
        ];
        let named = |offered: bool| {
            let names = needed.iter().filter(|(_, it)| *it == offered).map(|(name, _)| *name);
            names.collect::<Vec<_>>().join(" and ")
        };
        if offered(h3, &self.quic) == Some(true) {
            return report.ok("UDP", format!("{server} offers {}", named(true)));
        }
        report.fail(
            "UDP",
            format!("{server} does not offer {}", named(false)),
            "use a millrace-server there that carries UDP (docs/integrate/udp.md), or remove this \
             server from tunnel.servers; otherwise datagrams of mode = \"udp\" are dropped",
        );
    }

    /// Reports the key exchange. Only a hybrid group protects recordings against a later quantum
    /// computer.
    fn report_key_exchange(&mut self, report: &mut Report) {
        match key_exchange(&mut self.quic) {
            Some(group) if group.contains("MLKEM") => {
                report.ok("key exchange", format!("{group}, post-quantum"));
            }
            Some(group) => report.warn(
                "key exchange",
                format!("{group}, which is not post-quantum"),
                "it is safe today; a server of this version offers X25519MLKEM768",
            ),
            None => {}
        }
    }

    fn report_failure(
        &mut self,
        report: &mut Report,
        check: &str,
        server: SocketAddr,
        server_name: &Host,
    ) {
        let port = server.port();
        if self.quic.local_error().is_none() && self.quic.peer_error().is_none() {
            let (found, remedy) = if self.refused {
                (
                    "the port is closed".to_owned(),
                    "start millrace-server, or correct tunnel.servers",
                )
            } else {
                ("no answer".to_owned(), "see below")
            };
            let remedy = match remedy {
                "see below" => format!(
                    "let UDP port {port} pass both ways in every firewall on the way; see whether \
                     packets come with `tcpdump udp port {port}` at the server, and what \
                     `millrace-server doctor` says there"
                ),
                other => other.to_owned(),
            };
            return report.fail(check, format!("{server}: {found}"), remedy);
        }
        let reason = close_reason(&mut self.quic);
        let remedy = match handshake_failure(&mut self.quic) {
            HandshakeFailure::UnknownAuthority => {
                "tunnel.ca must be the ca.pem that the server's certificate comes from".to_owned()
            }
            HandshakeFailure::Expired => {
                "look at both clocks (`timedatectl`); if they are right, the server's certificate \
                 is to be renewed: `millrace-server certificates --renew` there"
                    .to_owned()
            }
            HandshakeFailure::WrongName => {
                let certificate = self.quic.peer_cert().and_then(|der| X509::from_der(der).ok());
                let names = certificate.map(|it| alternative_names(&it)).unwrap_or_default();
                format!(
                    "tunnel.server_name is {server_name}, the server's certificate is for {}",
                    if names.is_empty() { "another name".to_owned() } else { names.join(", ") }
                )
            }
            _ if peer_alert(&self.quic).is_some_and(|alert| alert != UNKNOWN_CA) => {
                alert_remedy(peer_alert(&self.quic).unwrap_or_default()).to_owned()
            }
            _ if self.quic.peer_error().is_some() => {
                "the server did not take our certificate or has no room: its log says why; its \
                 client_ca must be the authority of our certificate"
                    .to_owned()
            }
            _ => "the server's log may say more".to_owned(),
        };
        report.fail(check, format!("{server}: {reason}"), remedy);
    }
}
