//! `[[listen.class_of_ports]]`: classes of flows by the port of their destination.

use std::ops::RangeInclusive;

use serde::Deserialize;

use crate::allow::PortRange;
use crate::{Class, ConfigError, Source};

/// The class of the flows to a range of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassOfPorts {
    /// Ports of destinations.
    pub ports: RangeInclusive<u16>,
    /// Class of the flows that go there.
    pub class: Class,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClassOfPorts {
    ports: Vec<PortRange>,
    class: Class,
}

/// Checks the entries of the listener that the file calls `listener`. Each port may be in one entry.
pub(crate) fn check_class_of_ports(
    raw: Vec<RawClassOfPorts>,
    listener: &str,
    source: &Source,
) -> Result<Vec<ClassOfPorts>, ConfigError> {
    let mut checked: Vec<ClassOfPorts> = Vec::new();
    for (index, entry) in raw.into_iter().enumerate() {
        let key = format!("{listener}.class_of_ports[{index}].ports");
        if entry.ports.is_empty() {
            let problem = "needs at least one port, as [554, \"8554-8560\"]";
            return Err(source.error(&key, problem));
        }
        for PortRange(ports) in entry.ports {
            let overlaps = |it: &&ClassOfPorts| {
                it.ports.start() <= ports.end() && ports.start() <= it.ports.end()
            };
            if let Some(other) = checked.iter().find(overlaps) {
                let port = other.ports.start().max(ports.start());
                let problem = format!(
                    "port {port} has class {} already; a port has one class, so write it once",
                    other.class
                );
                return Err(source.error(&key, problem));
            }
            checked.push(ClassOfPorts { ports, class: entry.class });
        }
    }
    Ok(checked)
}
