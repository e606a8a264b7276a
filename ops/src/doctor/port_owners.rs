//! Which processes have the addresses that a program is to bind, from `/proc`.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use millrace_config::Protocol;
use procfs::net::{self, TcpState};
use procfs::process::{self, FDTarget, Process};

use super::report::Report;

/// Characters of a process name that the kernel keeps (proc(5), comm).
const MAX_COMM_CHARS: usize = 15;

/// A bound socket of this host.
#[derive(Clone, Debug)]
struct BoundSocket {
    protocol: Protocol,
    local: SocketAddr,
    user: u32,
    inode: u64,
}

/// A process with a socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SocketOwner {
    name: String,
    process: i32,
    /// The configuration that its command line names.
    config: Option<PathBuf>,
}

/// The sockets of this host, and the processes that have them.
#[derive(Debug)]
pub struct PortOwners {
    program: &'static str,
    /// The configuration that is diagnosed.
    config: PathBuf,
    /// The configuration of a process that names none.
    default_config: &'static str,
    sockets: Vec<BoundSocket>,
    unix: HashMap<PathBuf, u64>,
    owners: HashMap<u64, BTreeSet<SocketOwner>>,
}

/// Which processes have an address.
#[derive(Debug, PartialEq, Eq)]
enum AddressUse {
    /// No socket.
    Free,
    /// One process of the same program, with this configuration or another one.
    Own(SocketOwner),
    /// systemd, for socket activation.
    Systemd,
    /// Processes that keep the program from binding it.
    Taken(Vec<SocketOwner>),
    /// A process of this user that may not be looked at.
    Unknown(u32),
}

impl PortOwners {
    /// Reads the sockets. `config` is the configuration that `program` would run with, `default_config` the one that it
    /// has when its command line names none.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn read(
        program: &'static str,
        default_config: &'static str,
        config: &Path,
    ) -> Result<Self, procfs::ProcError> {
        let mut sockets = Vec::new();
        // Without IPv6 there is no such file.
        for entry in net::tcp()?.into_iter().chain(net::tcp6().unwrap_or_default()) {
            if entry.state == TcpState::Listen {
                let (local, user, inode) = (entry.local_address, entry.uid, entry.inode);
                sockets.push(BoundSocket { protocol: Protocol::Tcp, local, user, inode });
            }
        }
        for entry in net::udp()?.into_iter().chain(net::udp6().unwrap_or_default()) {
            let (local, user, inode) = (entry.local_address, entry.uid, entry.inode);
            sockets.push(BoundSocket { protocol: Protocol::Udp, local, user, inode });
        }
        let unix = net::unix().unwrap_or_default().into_iter();
        let unix = unix.filter_map(|entry| Some((entry.path?, entry.inode))).collect();
        let mut owners: HashMap<_, BTreeSet<_>> = HashMap::new();
        for process in process::all_processes()?.flatten() {
            let Ok(descriptors) = process.fd() else { continue };
            let targets = descriptors.flatten().map(|descriptor| descriptor.target);
            let mut inodes = targets.filter_map(|target| match target {
                FDTarget::Socket(inode) => Some(inode),
                _ => None,
            });
            let Some(first) = inodes.next() else { continue };
            let Some(owner) = SocketOwner::of(&process) else { continue };
            for inode in std::iter::once(first).chain(inodes) {
                owners.entry(inode).or_default().insert(owner.clone());
            }
        }
        Ok(Self { program, config: config.to_owned(), default_config, sockets, unix, owners })
    }

    /// Whether the program can bind an address, which the configuration names under `key`.
    pub fn check(&self, report: &mut Report, key: &str, protocol: Protocol, address: SocketAddr) {
        // The system chooses a free one.
        if address.port() == 0 {
            return;
        }
        let overlapping: Vec<_> = self
            .sockets
            .iter()
            .filter(|it| it.protocol == protocol && overlaps(address, it.local))
            .collect();
        let found = self.use_of(overlapping.iter().map(|it| (it.inode, it.user)));
        if found == AddressUse::Free
            && let Some(owner) = self.of_both_families(protocol, address)
        {
            return report.warn(
                &format!("{key} {address}"),
                format!("{owner} has [::]:{}, which may include IPv4", address.port()),
                "if it does, this program can't bind the address: stop that process, or choose another port",
            );
        }
        let protocol = match protocol {
            Protocol::Tcp => "t",
            Protocol::Udp => "u",
        };
        let port = address.port();
        let command = format!("`ss -l{protocol}np 'sport = :{port}'` as root");
        self.report(report, &format!("{key} {address}"), found, &command);
    }

    /// Whether the program can bind a Unix socket.
    pub fn check_unix(&self, report: &mut Report, key: &str, path: &Path) {
        let inode = self.unix.get(path).map(|inode| (*inode, 0));
        let found = self.use_of(inode.into_iter());
        let check = format!("{key} unix:{}", path.display());
        self.report(report, &check, found, "`ss -lxp` as root");
    }

    fn report(&self, report: &mut Report, check: &str, found: AddressUse, command: &str) {
        let choose = "stop it, or choose another address";
        match found {
            AddressUse::Free => report.ok(check, "no other process has it"),
            AddressUse::Systemd => report.ok(check, "systemd has it, for socket activation"),
            AddressUse::Own(owner) if self.has_this_config(&owner) => {
                report.ok(check, format!("{owner} has it"));
            }
            AddressUse::Own(owner) => {
                let config = self.config_of(&owner).display();
                let program = self.program;
                report.fail(
                    check,
                    format!("{owner} has it, with the configuration {config}"),
                    format!(
                        "a second {program} needs another address; to diagnose the one that runs, name \
                         its own configuration"
                    ),
                );
            }
            AddressUse::Taken(owners) => {
                let owners: Vec<_> = owners.iter().map(ToString::to_string).collect();
                let found =
                    format!("{} can't bind it: {} has it", self.program, owners.join(" and "));
                report.fail(check, found, format!("{choose}; {command} shows it"));
            }
            AddressUse::Unknown(user) => report.skip(
                check,
                format!("a process of user {user} has it, and this user may not see which"),
                format!("normal while {} is running; otherwise {command} shows it", self.program),
            ),
        }
    }

    /// The processes that have these sockets, each given by its inode and the ID of its user.
    fn use_of(&self, sockets: impl Iterator<Item = (u64, u32)>) -> AddressUse {
        let mut own = BTreeSet::new();
        let mut others = BTreeSet::new();
        let (mut unknown, mut systemd) = (None, false);
        for (inode, user) in sockets {
            let Some(owners) = self.owners.get(&inode) else {
                unknown = Some(user);
                continue;
            };
            // A socket that systemd has passed on belongs to both.
            if let Some(owner) = owners.iter().find(|it| it.is_program(self.program)) {
                own.insert(owner.clone());
            } else if owners.iter().any(|it| it.process == 1 && it.name == "systemd") {
                systemd = true;
            } else if let Some(owner) = owners.first() {
                others.insert(owner.clone());
            }
        }
        if !others.is_empty() || own.len() > 1 {
            return AddressUse::Taken(others.into_iter().chain(own).collect());
        }
        match (own.pop_first(), unknown, systemd) {
            (Some(owner), ..) => AddressUse::Own(owner),
            (_, Some(user), _) => AddressUse::Unknown(user),
            (_, _, true) => AddressUse::Systemd,
            (None, None, false) => AddressUse::Free,
        }
    }

    /// Another process with all IPv6 addresses of the port, which may include the IPv4 addresses.
    fn of_both_families(&self, protocol: Protocol, address: SocketAddr) -> Option<&SocketOwner> {
        let includes_ipv4 = |it: &&BoundSocket| {
            it.local.is_ipv6() && it.local.ip().is_unspecified() && address.is_ipv4()
        };
        let is_it =
            |it: &&BoundSocket| it.protocol == protocol && it.local.port() == address.port();
        let mut sockets = self.sockets.iter().filter(is_it).filter(includes_ipv4);
        let owner = sockets.find_map(|it| self.owners.get(&it.inode)?.first());
        owner.filter(|it| !it.is_program(self.program))
    }

    fn config_of<'a>(&self, owner: &'a SocketOwner) -> &'a Path {
        owner.config.as_deref().unwrap_or(Path::new(self.default_config))
    }

    fn has_this_config(&self, owner: &SocketOwner) -> bool {
        let [own, other] = [self.config.as_path(), self.config_of(owner)].map(Path::canonicalize);
        own.is_ok_and(|own| other.is_ok_and(|other| own == other))
    }
}

impl SocketOwner {
    fn of(process: &Process) -> Option<Self> {
        let name = process.stat().ok()?.comm;
        let directory = process.cwd().unwrap_or_default();
        let config = config_of(&process.cmdline().unwrap_or_default());
        let config = config.map(|path| directory.join(path));
        let config = config.map(|path| path.canonicalize().unwrap_or(path));
        Some(Self { name, process: process.pid(), config })
    }

    fn is_program(&self, program: &str) -> bool {
        self.name.chars().take(MAX_COMM_CHARS).eq(program.chars().take(MAX_COMM_CHARS))
    }
}

impl std::fmt::Display for SocketOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {})", self.name, self.process)
    }
}

/// The value of `--config` in a command line.
fn config_of(command_line: &[String]) -> Option<PathBuf> {
    let mut arguments = command_line.iter();
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix("--config") {
            Some("") => return arguments.next().map(PathBuf::from),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].into()),
            _ => {}
        }
    }
    None
}

/// Whether sockets at these addresses exclude each other, unless both may be shared.
fn overlaps(wanted: SocketAddr, bound: SocketAddr) -> bool {
    let [wanted_ip, bound_ip]: [IpAddr; 2] = [wanted, bound].map(|it| it.ip().to_canonical());
    wanted.port() == bound.port()
        && wanted_ip.is_ipv4() == bound_ip.is_ipv4()
        && (wanted_ip == bound_ip || wanted_ip.is_unspecified() || bound_ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::doctor::{CheckVerdict, Finding};

    fn found(check: impl FnOnce(&mut Report)) -> Finding {
        let mut report = Report::default();
        check(&mut report);
        report.findings.remove(0)
    }

    /// As a program sees this process that is not this one.
    fn owners() -> PortOwners {
        let config = Path::new("client.toml");
        PortOwners::read("millrace-client", "/etc/millrace/client.toml", config).unwrap()
    }

    #[test]
    fn addresses_exclude_each_other_by_family_port_and_wildcard() {
        let overlaps = |a: &str, b: &str| overlaps(a.parse().unwrap(), b.parse().unwrap());
        for (a, b, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "198.18.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "[::]:80", false),
            ("[::1]:80", "[::]:80", true),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", true),
        ] {
            assert_eq!(overlaps(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn an_address_of_another_process_fails_with_the_name_of_the_process() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let process = format!("process {}", std::process::id());
        for (protocol, address) in
            [(Protocol::Tcp, tcp.local_addr().unwrap()), (Protocol::Udp, udp.local_addr().unwrap())]
        {
            let check =
                |report: &mut Report| owners().check(report, "listen[0]", protocol, address);
            let taken = found(check);
            assert_eq!(taken.verdict, CheckVerdict::Failed, "{taken:?}");
            assert_eq!(taken.check, format!("listen[0] {address}"));
            assert!(taken.found.contains(&process), "{taken:?}");
        }
        let address = tcp.local_addr().unwrap();
        drop(tcp);
        let free = found(|report| owners().check(report, "listen[0]", Protocol::Tcp, address));
        assert_eq!(free.verdict, CheckVerdict::Ok, "{free:?}");
    }

    #[test]
    fn a_unix_socket_of_another_process_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let check = |report: &mut Report| owners().check_unix(report, "listen[0]", &path);
        assert_eq!(found(check).verdict, CheckVerdict::Ok);
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(found(check).verdict, CheckVerdict::Failed);
    }

    #[test]
    fn own_processes_are_told_apart_from_others() {
        let owner = |process, name: &str, config: Option<&str>| SocketOwner {
            name: name.to_owned(),
            process,
            config: config.map(PathBuf::from),
        };
        let ours = owner(7, "millrace-server", Some("/etc/a.toml"));
        let second = owner(8, "millrace-server", Some("/etc/b.toml"));
        let (systemd, other) = (owner(1, "systemd", None), owner(9, "dnsmasq", None));
        let sockets = HashMap::from([
            (1, BTreeSet::from([ours.clone()])),
            (2, BTreeSet::from([systemd.clone()])),
            (3, BTreeSet::from([systemd, ours.clone()])),
            (4, BTreeSet::from([other.clone()])),
            (5, BTreeSet::from([second.clone()])),
        ]);
        let owners = PortOwners {
            program: "millrace-server",
            config: "/etc/a.toml".into(),
            default_config: "/etc/a.toml",
            sockets: Vec::new(),
            unix: HashMap::new(),
            owners: sockets,
        };
        let of = |inodes: &[u64]| owners.use_of(inodes.iter().map(|inode| (*inode, 33)));
        assert_eq!(of(&[]), AddressUse::Free);
        assert_eq!(of(&[1, 1]), AddressUse::Own(ours.clone()));
        assert_eq!(of(&[2]), AddressUse::Systemd);
        assert_eq!(of(&[3]), AddressUse::Own(ours.clone()));
        assert_eq!(of(&[4]), AddressUse::Taken(vec![other]));
        assert_eq!(of(&[1, 5]), AddressUse::Taken(vec![ours, second]));
        assert_eq!(of(&[6]), AddressUse::Unknown(33));
    }

    #[test]
    fn the_configuration_of_a_command_line_is_found() {
        let of = |line: &str| config_of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("millrace-client run --config a.toml"), Some("a.toml".into()));
        assert_eq!(of("millrace-client run --config=b.toml"), Some("b.toml".into()));
        assert_eq!(of("millrace-client run --configuration c.toml"), None);
        assert_eq!(of("millrace-client run"), None);
    }
}
