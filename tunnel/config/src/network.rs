//! A network or an address, as configurations write it.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::Deserialize;
use serde::de::Deserializer;

use crate::value::from_string;

pub(crate) struct Network(pub(crate) IpNet);

impl FromStr for Network {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse()?,
        };
        Ok(Self(network))
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a network or an address, as \"198.18.3.0/24\", \"2001:db8::/32\" or \
                        \"198.18.3.2\"";
        from_string(deserializer, expected)
    }
}
