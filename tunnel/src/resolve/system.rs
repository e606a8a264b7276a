//! What the system's files say about names, read again when they change.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::Hosts;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use millrace_config::ResolverSettings;
use std::net::{IpAddr, SocketAddr};

use super::lookup::NameServers;

/// How often the files are looked at, at most.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Name servers of `/etc/resolv.conf` that are used, as in resolv.conf(5) (MAXNS).
const MAX_NAME_SERVERS: usize = 3;
/// What resolv.conf(5) says of a file without a name server.
const DEFAULT_NAME_SERVER: &[u8] = b"\nnameserver 127.0.0.1\n";

/// Tells one content of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// The contents of `resolv.conf` and `hosts`, as last read.
pub(super) struct System {
    resolv_conf: PathBuf,
    hosts_file: PathBuf,
    stamps: [Option<Stamp>; 2],
    looked: Instant,
    hosts: Hosts,
    name_servers: Arc<NameServers>,
}

impl System {
    pub(super) fn new(settings: &ResolverSettings) -> Self {
        Self::of("/etc/resolv.conf".into(), "/etc/hosts".into(), settings)
    }

    fn of(resolv_conf: PathBuf, hosts_file: PathBuf, settings: &ResolverSettings) -> Self {
        let mut system = Self {
            resolv_conf,
            hosts_file,
            stamps: [None; 2],
            looked: Instant::now(),
            hosts: Hosts::default(),
            name_servers: Arc::new(NameServers::none()),
        };
        system.read(settings);
        system
    }

    /// Reads the files if they have changed; looks at them at most once a second.
    pub(super) fn refresh(&mut self, settings: &ResolverSettings, now: Instant) {
        if now.saturating_duration_since(self.looked) < FILE_CHECK_INTERVAL {
            return;
        }
        self.looked = now;
        if self.stamps() != self.stamps {
            tracing::info!("resolv.conf or hosts changed");
            self.read(settings);
        }
    }

    /// Reads the files, whether they have changed or not. What was cached is forgotten.
    pub(crate) fn read(&mut self, settings: &ResolverSettings) {
        // Before the contents: a change in between is seen the next time.
        self.stamps = self.stamps();
        self.hosts = Hosts::default();
        if let Ok(file) = File::open(&self.hosts_file)
            && let Err(error) = self.hosts.read_hosts_conf(file)
        {
            tracing::warn!(file = %self.hosts_file.display(), %error, "failed to read");
        }
        let text = fs::read(&self.resolv_conf).unwrap_or_default();
        match parse(&text, &settings.nameservers) {
            Ok((config, options)) => {
                self.name_servers = Arc::new(NameServers::new(&config, &options));
            }
            Err(error) => {
                tracing::warn!(file = %self.resolv_conf.display(), %error, "failed to parse");
            }
        }
    }

    pub(super) fn name_servers(&self) -> Arc<NameServers> {
        self.name_servers.clone()
    }

    /// What the hosts file has for a name; a name that is there is not asked of name servers.
    pub(super) fn in_hosts(&self, name: &str) -> Vec<IpAddr> {
        let Ok(name) = Name::from_utf8(name) else { return Vec::new() };
        let found = [RecordType::AAAA, RecordType::A].into_iter().filter_map(|record_type| {
            self.hosts.lookup_static_host(&Query::query(name.clone(), record_type))
        });
        let addresses = |lookup: hickory_resolver::lookup::Lookup| {
            lookup.answers().iter().filter_map(|it| it.data.ip_addr()).collect::<Vec<_>>()
        };
        found.flat_map(addresses).collect()
    }

    fn stamps(&self) -> [Option<Stamp>; 2] {
        [&self.resolv_conf, &self.hosts_file].map(|file| {
            let metadata = fs::metadata(file).ok()?;
            Some(Stamp {
                device: metadata.dev(),
                inode: metadata.ino(),
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
            })
        })
    }
}

/// `instead` replaces the name servers of the file, if there are any in it.
fn parse(text: &[u8], instead: &[SocketAddr]) -> Result<(ResolverConfig, ResolverOpts), NetError> {
    let (mut config, options) = parse_resolv_conf(text)
        .or_else(|_| parse_resolv_conf([text, DEFAULT_NAME_SERVER].concat()))?;
    // resolv.conf(5): the domain of the host's own name is for a file without a search list.
    if !config.search.is_empty() {
        config.domain = None;
    }
    config.name_servers.truncate(MAX_NAME_SERVERS);
    if !instead.is_empty() {
        let server = |address: &SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                connection.port = address.port();
            }
            server
        };
        config.name_servers = instead.iter().map(server).collect();
    }
    Ok((config, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_name_server_means_this_host() {
        for text in ["", "search a.example b.example\noptions ndots:5\n"] {
            let (config, _) = parse(text.as_bytes(), &[]).unwrap();
            let ips: Vec<_> = config.name_servers.iter().map(|server| server.ip).collect();
            assert_eq!(ips, ["127.0.0.1".parse::<IpAddr>().unwrap()], "{text}");
        }
    }

    #[test]
    fn search_ndots_and_name_servers_are_those_of_the_file() {
        let text = "search a.example b.example\noptions ndots:5\nnameserver 198.18.0.1\n\
                    nameserver 198.18.0.2\nnameserver 198.18.0.3\nnameserver 198.18.0.4\n";
        let (config, options) = parse(text.as_bytes(), &[]).unwrap();
        assert_eq!((config.search.len(), options.ndots, config.name_servers.len()), (2, 5, 3));
        let (config, options) =
            parse(text.as_bytes(), &["127.0.0.1:5353".parse().unwrap()]).unwrap();
        assert_eq!((config.search.len(), options.ndots, config.name_servers.len()), (2, 5, 1));
        assert!(config.name_servers[0].connections.iter().all(|it| it.port == 5353));
    }

    #[test]
    fn a_changed_hosts_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        fs::write(&file, "198.18.0.9 one.example ONE\n2001:db8::9 one.example # both\n").unwrap();
        let settings = ResolverSettings::default();
        let mut system = System::of(dir.path().join("none"), file.clone(), &settings);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(system.in_hosts("one.example"), [ip("2001:db8::9"), ip("198.18.0.9")]);
        assert_eq!(system.in_hosts("one"), [ip("198.18.0.9")]);
        assert!(system.in_hosts("two.example").is_empty());
        fs::write(&file, "198.18.0.10 two.example\n").unwrap();
        system.refresh(&settings, system.looked + FILE_CHECK_INTERVAL / 2);
        assert!(system.in_hosts("two.example").is_empty(), "looked too early");
        system.refresh(&settings, system.looked + FILE_CHECK_INTERVAL);
        assert_eq!(system.in_hosts("two.example"), [ip("198.18.0.10")]);
        assert!(system.in_hosts("one.example").is_empty());
    }
}
