//! The kernel, its limits, and what this process may do.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;

use caps::{CapSet, Capability};
use millrace_config::{Runtime, Source};
use nix::sys::utsname::uname;

use super::report::Report;
use crate::privileges::Account;
use crate::system_limits::check;

/// UDP receive offload came with 5.0, segmentation offload with 4.18.
const OFFLOADS_SINCE: (u32, u32) = (5, 0);

/// Whether the kernel has what the data path uses.
pub fn kernel(report: &mut Report) {
    let Ok(name) = uname() else {
        return report.skip("kernel", "its version can't be read", "look at `uname -r`");
    };
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= OFFLOADS_SINCE {
        report.ok("kernel", format!("Linux {release}"));
    } else {
        let remedy = "use Linux 5.0 or newer: without UDP offloads each packet costs a system call";
        report.warn("kernel", format!("Linux {release}"), remedy);
    }
}

/// UDP buffers, descriptors and the mode of the private key.
pub fn limits(report: &mut Report, max_flows: usize, private_key: &Path) {
    let warnings = check(max_flows, private_key);
    if warnings.is_empty() {
        report.ok("limits", "socket buffers and descriptors suffice, the private key is closed");
    }
    for warning in warnings {
        report.warn("limits", warning.problem, warning.command);
    }
}

/// `runtime.user`, and whether it can read what a reload reads.
pub fn account(report: &mut Report, runtime: &Runtime, source: &Source) {
    let account = match Account::find(runtime, source) {
        Ok(Some(account)) => account,
        Ok(None) if nix::unistd::geteuid().is_root() => {
            let remedy = "nothing with the systemd unit, which has a user; otherwise \
                          runtime.user = \"millrace\", after `useradd --system millrace`";
            return report.warn("user", "it would run as root", remedy);
        }
        Ok(None) => return report.ok("user", "not root"),
        Err(error) => return report.fail("user", error.problem, "see runtime.user"),
    };
    let own = nix::unistd::geteuid();
    if own.as_raw() != account.uid() && !own.is_root() {
        let found = format!("this is user {own}, which can't become {}", account.uid());
        return report.fail("user", found, "start it as root, or as that user");
    }
    report.ok("user", format!("becomes user {}", account.uid()));
}

/// Whether this process may bind a port.
pub fn bind_privilege(report: &mut Report, port: u16) {
    let first_free = sysctl("net/ipv4/ip_unprivileged_port_start").unwrap_or(1024);
    let check = format!("port {port}");
    if port == 0 || i64::from(port) >= first_free {
        return;
    }
    match caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_BIND_SERVICE) {
        Ok(true) => report.ok(&check, "may be bound"),
        _ => report.fail(
            &check,
            format!("ports below {first_free} need CAP_NET_BIND_SERVICE"),
            "start it as root with runtime.user, or AmbientCapabilities=CAP_NET_BIND_SERVICE in \
             the systemd unit, or use a higher port",
        ),
    }
}

/// Whether there is a port for each UDP flow. Unlike TCP's connections those of a source address
/// can't share one, whatever their destinations are.
pub fn udp_ports(report: &mut Report, max_flows: usize) {
    let check = "UDP ports";
    let Some((first, last, ports)) = local_ports(report, check) else { return };
    if ports >= max_flows {
        return report.ok(check, format!("{ports} for at most {max_flows} flows"));
    }
    report.warn(
        check,
        format!("{ports} from {first} to {last}: the system has none for UDP flows beyond that"),
        format!(
            "sysctl -w net.ipv4.ip_local_port_range=\"1025 65535\", without the ports of services \
             (net.ipv4.ip_local_reserved_ports), or limits.max_flows = {ports}"
        ),
    );
}

/// Whether there are two ports for each medium of RTSP players that is carried over UDP.
pub fn rtp_ports(report: &mut Report, max_pairs: usize) {
    let check = "RTP ports";
    let Some((first, last, ports)) = local_ports(report, check) else { return };
    if let Err(error) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) {
        let remedy = "`ss -uan` shows what has them; widen net.ipv4.ip_local_port_range";
        return report.fail(check, format!("none from {first} to {last} is free: {error}"), remedy);
    }
    if ports >= 2 * max_pairs {
        return report.ok(check, format!("{ports} for at most {max_pairs} pairs"));
    }
    report.warn(
        check,
        format!("{ports} from {first} to {last}: too few for {max_pairs} pairs"),
        format!(
            "sysctl -w net.ipv4.ip_local_port_range=\"1025 65535\", or limits.max_rtsp_port_pairs = {}",
            ports / 2
        ),
    );
}

/// The ports that the system chooses from: the first, the last, and how many.
fn local_ports(report: &mut Report, check: &str) -> Option<(u16, u16, usize)> {
    let range = read("net/ipv4/ip_local_port_range").and_then(|text| {
        let mut ends = text.split_whitespace().map_while(|end| end.parse::<u16>().ok());
        Some((ends.next()?, ends.next()?))
    });
    let Some((first, last)) = range else {
        report.skip(check, "can't be read", "sysctl net.ipv4.ip_local_port_range");
        return None;
    };
    Some((first, last, usize::from(last.saturating_sub(first)) + 1))
}

/// A number below `/proc/sys`.
pub fn sysctl(name: &str) -> Option<i64> {
    read(name)?.trim().parse().ok()
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok()
}
