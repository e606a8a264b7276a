//! The addresses that the client binds, and the destinations that its configuration names.

use std::path::Path;

use millrace_config::{ClientConfig, Interception, Listen, ListenAddress, Protocol};
use millrace_ops::doctor::{FixedDestination, PortOwners, Report};

use crate::listeners::destination_of;
use crate::settings::DEFAULT_CONFIG;

/// Checks that no other process has an address of the configuration, which is in `file`.
pub(super) fn check(report: &mut Report, config: &ClientConfig, file: &Path) {
    let owners = match PortOwners::read("millrace-client", DEFAULT_CONFIG, file) {
        Ok(owners) => owners,
        Err(error) => {
            let found = format!("the sockets of this host can't be read: {error}");
            return report.skip("addresses", found, "mount /proc");
        }
    };
    for (index, listen) in config.listen.iter().enumerate() {
        let key = key_of(index);
        match &listen.address {
            ListenAddress::Tcp(address) => {
                owners.check(report, &key, protocol_of(listen), *address);
            }
            ListenAddress::Unix(path) => owners.check_unix(report, &key, path),
        }
    }
    if let Some(address) = config.admin.address {
        owners.check(report, "admin.address", Protocol::Tcp, address);
    }
}

/// The destinations of listeners that have one only.
pub(super) fn fixed_destinations(config: &ClientConfig) -> Vec<FixedDestination> {
    let listeners = config.listen.iter().enumerate();
    let fixed = listeners.filter_map(|(index, listen)| match &listen.interception {
        Interception::Static { destination } | Interception::Udp { destination } => {
            Some(FixedDestination {
                listener: key_of(index),
                protocol: protocol_of(listen),
                destination: destination_of(destination).ok()?,
            })
        }
        _ => None,
    });
    fixed.collect()
}

fn key_of(index: usize) -> String {
    format!("listen[{index}]")
}

fn protocol_of(listen: &Listen) -> Protocol {
    match listen.interception.is_udp() {
        true => Protocol::Udp,
        false => Protocol::Tcp,
    }
}
