//! `millrace-client doctor`.

mod address_families;
mod addresses;
mod interception;
mod rtsp;
mod rules;

use std::process::ExitCode;

use caps::{CapSet, Capability};
use millrace_cc::registry::Algorithm;
use millrace_config::{ClientConfig, Interception, ListenAddress};
use millrace_enrolment::ClientSide;
use millrace_ops::doctor;
use millrace_ops::doctor::{CertificateOwner, DoctorArgs, HandshakeTarget, Report};
use millrace_ops::selection::Selection;
use millrace_tunnel::algorithms;
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::transport::{TransportSide, TunnelConfig};

/// Where intercepted datagrams usually go, and answers to them come from (RFC 9114, Section 3.1.1: the port of the
/// HTTPS origin unless it says otherwise).
const HTTP3_PORT: i64 = 443;

/// Runs all checks and prints the report.
///
/// # Errors
/// The configuration is not valid, which has an exit code of its own.
pub fn run(arguments: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = millrace_config::load_client(&arguments.config, &algorithms::check)?;
    let mut report = Report::default();
    let credentials = &config.tunnel.credentials;
    doctor::kernel(&mut report);
    doctor::limits(&mut report, config.limits.max_flows, &credentials.private_key);
    doctor::account(&mut report, &config.runtime, &config.source);
    for listen in &config.listen {
        if let ListenAddress::Tcp(address) = listen.address {
            doctor::bind_privilege(&mut report, address.port());
        }
    }
    addresses::check(&mut report, &config, &arguments.config);
    capabilities(&mut report, &config);
    interception::check(&mut report, &config);
    address_families::check(&mut report, &config);
    rtsp::check(&mut report, &config);
    rtsp::check_direct(&mut report, &config);
    doctor::certificates(&mut report, CertificateOwner::Client, credentials);
    let selection = doctor::selection(&mut report, config.mcc.as_ref(), &config.source);
    // Connections need the initial algorithm.
    if config.mcc.is_none() || selection.is_some() {
        servers(&mut report, &config, selection.as_ref().map(Selection::initial));
    }
    enrolment(&mut report, &config);
    report.print(arguments.json)
}

/// CAP_NET_ADMIN, for marks and for transparent listeners.
fn capabilities(report: &mut Report, config: &ClientConfig) {
    let carries_udp = config.listen.iter().any(|it| it.interception == Interception::TproxyUdp);
    let transparent = config.listen.iter().any(|it| it.interception == Interception::Tproxy);
    if carries_udp {
        answer_privilege(report);
    }
    if config.tunnel.mark.is_none() && !transparent && !carries_udp {
        return report.ok("capabilities", "none needed");
    }
    let check = "CAP_NET_ADMIN";
    let remedy = "start it as root with runtime.user, or AmbientCapabilities=CAP_NET_ADMIN in the \
                  systemd unit, or --cap-add NET_ADMIN for docker run";
    match caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN) {
        Ok(true) => report.ok(check, "is there, for tunnel.mark and transparent listeners"),
        _ if config.listen.iter().any(|it| it.interception.intercepts()) => {
            let found = "is missing: interception and tunnel.mark need it";
            report.fail(check, found, remedy);
        }
        _ => report.warn(
            check,
            "is missing: tunnel.mark is not set, which only matters where flows are intercepted",
            format!("tunnel.mark = 0 if none are; else {remedy}"),
        ),
    }
}

/// CAP_NET_BIND_SERVICE, for answers to intercepted datagrams.
fn answer_privilege(report: &mut Report) {
    let first_free = doctor::sysctl("net/ipv4/ip_unprivileged_port_start").unwrap_or(1024);
    if HTTP3_PORT >= first_free {
        return;
    }
    let check = "CAP_NET_BIND_SERVICE";
    match caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_BIND_SERVICE) {
        Ok(true) => report.ok(check, "is there, for answers to intercepted datagrams"),
        _ => report.fail(
            check,
            format!(
                "is missing: answers to intercepted datagrams can't leave from ports below \
                 {first_free}, such as {HTTP3_PORT}"
            ),
            "start it as root with runtime.user, or AmbientCapabilities=CAP_NET_ADMIN \
             CAP_NET_BIND_SERVICE in the systemd unit",
        ),
    }
}

/// Checks that the certificate can be renewed, where it is to be.
fn enrolment(report: &mut Report, config: &ClientConfig) {
    let Some(enrolment) = &config.enrolment else { return };
    let side = ClientSide {
        server: enrolment.server.clone(),
        server_name: enrolment.server_name.clone(),
        mark: config.tunnel.mark,
    };
    let check = "enrolment";
    match side.reach() {
        Ok(()) => report.ok(check, format!("{} answers on TCP, for renewals", side.server)),
        Err(error) => report.warn(
            check,
            format!("{error}: the certificate can't be renewed"),
            "open the port for TCP, and set enrolment.listen at the server",
        ),
    }
}

fn servers(report: &mut Report, config: &ClientConfig, initial: Option<&Algorithm>) {
    let tunnel = &config.tunnel;
    let udp = config.listen.iter().any(|it| it.interception.is_udp());
    let resolver = match Resolver::start(&config.resolver) {
        Ok(resolver) => resolver,
        Err(error) => {
            let remedy = "raise the limits of threads and descriptors (`ulimit -u`, `ulimit -n`)";
            return report.fail("servers", format!("can't start the resolver: {error}"), remedy);
        }
    };
    let destinations = addresses::fixed_destinations(config);
    for server in &tunnel.servers {
        let wanted = HandshakeTarget {
            server: &server.address,
            server_name: &server.name,
            mark: tunnel.mark,
            timeout: tunnel.connect_timeout,
            udp,
            rtsp: rtsp::may_follow(config),
            destinations: &destinations,
        };
        match TunnelConfig::new(
            TransportSide::Client,
            &tunnel.transport,
            &tunnel.credentials,
            initial,
        ) {
            Ok(made) => doctor::reach(report, made, &resolver, wanted),
            Err(error) => {
                let remedy = "fix the certificate checks above";
                return report.fail("servers", error.to_string(), remedy);
            }
        }
    }
}
