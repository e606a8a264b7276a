//! System limits that are too low for the configuration, and the command that raises each.
//!
//! Checked once at start. None is fatal: the proxy works, but drops packets or refuses flows
//! earlier than it should.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Socket buffers that hold what arrives while an event loop is busy elsewhere: 10 ms at 6 Gbit/s.
/// It is also what other QUIC implementations ask for (7.5 MB).
pub const UDP_BUFFER_BYTES: u64 = 7_500_000;

/// Descriptors beside those of flows: event loops, listeners, tunnel sockets, logs, admin.
const OTHER_DESCRIPTORS: u64 = 256;

/// A limit that is too low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What is too low, and what that costs.
    pub problem: String,
    /// The command that mends it.
    pub command: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; to mend it: {}", self.problem, self.command)
    }
}

/// All checks for a process that is to carry `max_flows` flows with the key in `private_key`.
///
/// It raises the soft limit of descriptors, as far as that is needed and allowed.
pub fn check(max_flows: usize, private_key: &Path) -> Vec<Warning> {
    let mut warnings = udp_buffers(Path::new("/proc/sys/net/core"));
    warnings.extend(raise_descriptors(max_flows));
    warnings.extend(private_key_mode(private_key));
    warnings
}

/// Logs what [`check`] finds.
pub fn warn(max_flows: usize, private_key: &Path) {
    for warning in check(max_flows, private_key) {
        tracing::warn!("{warning}");
    }
}

/// Compares the largest socket buffers with [`UDP_BUFFER_BYTES`]. `directory` has the files
/// `rmem_max` and `wmem_max`; what can't be read, as in some containers, is not warned about.
fn udp_buffers(directory: &Path) -> Vec<Warning> {
    let sides = [("rmem_max", "receive", "dropped"), ("wmem_max", "send", "delayed")];
    let mut warnings = Vec::new();
    for (name, side, cost) in sides {
        let value = fs::read_to_string(directory.join(name)).ok();
        let Some(bytes) = value.and_then(|text| text.trim().parse::<u64>().ok()) else { continue };
        if bytes < UDP_BUFFER_BYTES {
            warnings.push(Warning {
                problem: format!(
                    "UDP {side} buffers are limited to {bytes} bytes, so that packets are {cost} \
                     at high rates; {UDP_BUFFER_BYTES} are needed"
                ),
                command: format!("sysctl -w net.core.{name}={UDP_BUFFER_BYTES}"),
            });
        }
    }
    warnings
}

/// Raises the soft limit of descriptors for `max_flows`, up to the hard limit.
fn raise_descriptors(max_flows: usize) -> Option<Warning> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let plan = DescriptorPlan::new(soft, hard, max_flows);
    let raised = plan.soft == soft || setrlimit(Resource::RLIMIT_NOFILE, plan.soft, hard).is_ok();
    plan.warning(if raised { plan.soft } else { soft })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DescriptorPlan {
    needed: u64,
    soft: u64,
}

impl DescriptorPlan {
    // A flow has one TCP socket; a second one while two addresses of a destination are tried.
    fn new(soft: u64, hard: u64, max_flows: usize) -> Self {
        let flows = u64::try_from(max_flows).unwrap_or(u64::MAX);
        let needed = flows.saturating_mul(2).saturating_add(OTHER_DESCRIPTORS);
        Self { needed, soft: soft.max(needed.min(hard)) }
    }

    fn warning(&self, limit: u64) -> Option<Warning> {
        let Self { needed, .. } = *self;
        (limit < needed).then(|| Warning {
            problem: format!(
                "{limit} open files are allowed, so that flows are refused before \
                 limits.max_flows is reached; {needed} are needed"
            ),
            command: format!(
                "ulimit -Hn {needed} as root before starting, or LimitNOFILE={needed} in the \
                 systemd unit, or --ulimit nofile={needed} for docker run"
            ),
        })
    }
}

fn private_key_mode(path: &Path) -> Option<Warning> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| Warning {
        problem: format!(
            "the private key {} has mode {mode:04o}, so that others can use it",
            path.display()
        ),
        command: format!("chmod 600 {}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_udp_buffers_are_named_with_their_command() {
        let directory = tempfile::tempdir().unwrap();
        let set = |name: &str, value: &str| fs::write(directory.path().join(name), value).unwrap();
        set("rmem_max", "212992\n");
        set("wmem_max", "7500000\n");
        let warnings = udp_buffers(directory.path());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(warnings[0].command, "sysctl -w net.core.rmem_max=7500000");
        assert!(warnings[0].problem.contains("receive buffers are limited to 212992 bytes"));
        set("wmem_max", "7499999\n");
        assert_eq!(udp_buffers(directory.path())[1].command, "sysctl -w net.core.wmem_max=7500000");
        set("rmem_max", "garbage");
        assert_eq!(udp_buffers(directory.path()).len(), 1);
        assert_eq!(udp_buffers(&directory.path().join("absent")), []);
    }

    #[test]
    fn descriptors_are_raised_to_what_is_needed_and_no_further() {
        // soft, hard, flows -> soft then, warned
        let cases = [
            (1024, 1_048_576, 10_000, 20_256, false),
            (1024, 1_048_576, 100, 1024, false),
            (1024, 4096, 10_000, 4096, true),
            (4096, 4096, 10_000, 4096, true),
            (1_000_000, 1_048_576, 10_000, 1_000_000, false),
            (1024, u64::MAX, usize::MAX, u64::MAX, false),
        ];
        for (soft, hard, flows, expected, warned) in cases {
            let plan = DescriptorPlan::new(soft, hard, flows);
            assert_eq!(plan.soft, expected, "{soft} {hard} {flows}");
            assert_eq!(plan.warning(plan.soft).is_some(), warned, "{soft} {hard} {flows}");
        }
        let warning = DescriptorPlan::new(1024, 4096, 10_000).warning(4096).unwrap();
        assert!(warning.to_string().contains("LimitNOFILE=20256"), "{warning}");
    }

    #[test]
    fn the_soft_limit_of_this_process_is_raised() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let flows = usize::try_from(soft.min(hard - 1).saturating_sub(OTHER_DESCRIPTORS) / 2 + 8);
        let needed = DescriptorPlan::new(soft, hard, flows.unwrap()).needed;
        let warning = raise_descriptors(flows.unwrap());
        let (now, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(now, soft.max(needed.min(hard)));
        assert_eq!(warning.is_some(), needed > hard);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    }

    #[test]
    fn a_key_that_others_can_read_is_named_with_its_command() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.key");
        fs::write(&path, "").unwrap();
        for (mode, warned) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let warning = private_key_mode(&path);
            assert_eq!(warning.is_some(), warned, "{mode:o}");
            let command = format!("chmod 600 {}", path.display());
            assert!(warning.is_none_or(|warning| warning.command == command));
        }
    }
}
