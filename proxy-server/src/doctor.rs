//! `millrace-server doctor`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use millrace_config::{Protocol, ServerConfig};
use millrace_enrolment::EnrolmentService;
use millrace_ops::doctor;
use millrace_ops::doctor::{CertificateOwner, DoctorArgs, PortOwners, Report};
use millrace_tunnel::algorithms;
use millrace_tunnel::own_addresses::interface_addresses;
use millrace_tunnel::resolve::Resolver;

use crate::settings::DEFAULT_CONFIG;

/// Ports of RTSP (IANA: `rtsp` and `rtsp-alt`).
const RTSP_PORTS: [u16; 2] = [554, 8554];
/// How long the answer of a server on this machine may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes all checks and prints the report.
///
/// # Errors
/// The configuration is wrong, which has an exit code of its own.
pub fn run(arguments: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = millrace_config::load_server(&arguments.config, &algorithms::check)?;
    let mut report = Report::default();
    let credentials = &config.tunnel.credentials;
    doctor::kernel(&mut report);
    doctor::limits(&mut report, config.limits.max_flows, &credentials.private_key);
    doctor::account(&mut report, &config.runtime, &config.source);
    doctor::certificates(&mut report, CertificateOwner::Server, credentials);
    enrolment(&mut report, &config);
    destinations(&mut report, &config);
    origins(&mut report, &config);
    rtsp(&mut report, &config);
    doctor::selection(&mut report, config.mcc.as_ref(), &config.source);
    addresses(&mut report, &config, &arguments.config);
    for address in &config.tunnel.listen {
        doctor::bind_privilege(&mut report, address.port());
        answers(&mut report, *address);
    }
    report.print(arguments.json)
}

/// Checks that clients can get certificates, where they are to.
fn enrolment(report: &mut Report, config: &ServerConfig) {
    let check = "enrolment";
    match EnrolmentService::new(config) {
        Ok(None) => {}
        Ok(Some(_)) => {
            report.ok(check, "the authority and the server's certificate belong together")
        }
        Err(error) => {
            let remedy = "`millrace-server init` makes both; without [enrolment] clients get no certificates here";
            report.fail(check, error.to_string(), remedy);
        }
    }
    for address in config.enrolment.iter().flat_map(|it| &it.listen) {
        doctor::bind_privilege(report, address.port());
    }
}

fn destinations(report: &mut Report, config: &ServerConfig) {
    if config.allow.is_empty() {
        let remedy = "add [[destinations.allow]] with the network and ports of the origins";
        report.fail("destinations", "no destination is allowed, so every flow is refused", remedy);
    } else {
        let udp = config.allow.iter().filter(|it| it.protocol == Protocol::Udp).count();
        let entries = format!("{} entries for TCP, {udp} for UDP", config.allow.len() - udp);
        report.ok("destinations", entries);
        if udp > 0 {
            doctor::udp_ports(report, config.limits.max_flows);
        }
    }
}

/// Checks the origins that the allow-list names one by one.
fn origins(report: &mut Report, config: &ServerConfig) {
    match Resolver::start(&config.resolver) {
        Ok(resolver) => doctor::origins(report, &config.allow, &config.dial, &resolver),
        Err(error) => {
            let remedy = "raise the limits of threads and descriptors (`ulimit -u`, `ulimit -n`)";
            report.skip("destinations", format!("can't start the resolver: {error}"), remedy);
        }
    }
}

/// Checks that no other process, such as a second server, has an address of the configuration in `file`.
fn addresses(report: &mut Report, config: &ServerConfig, file: &Path) {
    let owners = match PortOwners::read("millrace-server", DEFAULT_CONFIG, file) {
        Ok(owners) => owners,
        Err(error) => {
            let found = format!("the sockets of this host can't be read: {error}");
            return report.skip("addresses", found, "mount /proc");
        }
    };
    for address in &config.tunnel.listen {
        owners.check(report, "tunnel.listen", Protocol::Udp, *address);
    }
    for address in config.enrolment.iter().flat_map(|it| &it.listen) {
        owners.check(report, "enrolment.listen", Protocol::Tcp, *address);
    }
    if let Some(address) = config.admin.address {
        owners.check(report, "admin.address", Protocol::Tcp, address);
    }
}

/// Checks whether RTP over UDP of RTSP players can take the tunnel.
fn rtsp(report: &mut Report, config: &ServerConfig) {
    let check = "RTP over UDP";
    let pairs = config.limits.max_rtsp_port_pairs;
    if pairs == 0 {
        let found =
            "limits.max_rtsp_port_pairs is 0: it is refused, and players use the RTSP connection";
        return report.warn(check, found, "remove the key where players use RTSP over UDP");
    }
    doctor::rtp_ports(report, pairs);
    for (index, allow) in config.allow.iter().enumerate().filter(|(_, it)| it.forward_to.is_some())
    {
        let has = |port: &u16| allow.ports.iter().any(|ports| ports.contains(port));
        if let Some(port) = RTSP_PORTS.iter().find(|port| has(port)) {
            report.warn(
                check,
                format!("destinations.allow[{index}] forwards port {port}: RTSP there is not followed"),
                "list the ports of RTSP in an entry without forward_to: media over UDP can't take the \
                 way through another proxy",
            );
        }
    }
}

/// Checks that a server answers at an address, with a packet of an unknown version: it answers with
/// Version Negotiation (RFC 9000, Section 6), which costs it no state.
fn answers(report: &mut Report, address: SocketAddr) {
    let check = format!("tunnel.listen {address}");
    let is_here = address.ip().is_unspecified()
        || interface_addresses().is_ok_and(|own| own.contains(&address.ip().to_canonical()));
    if !is_here {
        let remedy = "correct tunnel.listen, or `ip address add` it";
        return report.fail(&check, "this machine does not have the address", remedy);
    }
    if address.port() == 0 {
        return report.ok(&check, "the system chooses the port");
    }
    let to = match address.ip() {
        ip if !ip.is_unspecified() => address,
        IpAddr::V4(_) => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(_) => (Ipv6Addr::LOCALHOST, address.port()).into(),
    };
    match probe(to) {
        Ok(true) => report.ok(&check, "a QUIC server answers"),
        Ok(false) | Err(_) => report.skip(
            &check,
            "no answer",
            "normal while millrace-server is not running; otherwise check its log and the firewall \
             rules of the loopback",
        ),
    }
}

fn unspecified(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn probe(to: SocketAddr) -> std::io::Result<bool> {
    let socket = UdpSocket::bind((unspecified(to), 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    // A long header, a version of the kind that forces negotiation (RFC 9000, Section 15), two
    // connection IDs of eight bytes, and what a first packet is padded to.
    let mut packet = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    packet.extend([1; 8]);
    packet.push(8);
    packet.extend([2; 8]);
    packet.resize(1200, 0);
    socket.send(&packet)?;
    let mut answer = [0; 1500];
    let length = socket.recv(&mut answer)?;
    // Version negotiation has version 0 (RFC 8999, Section 6).
    Ok(length > 5 && answer[0] & 0x80 != 0 && answer[1..5] == [0; 4])
}
