//! How the gateway handles HTTP/3.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the gateway handles HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Nothing is intercepted.
    Direct,
    /// TCP is intercepted, and the browser does not speak HTTP/3.
    TcpOnly,
    /// TCP is intercepted, HTTP/3 rejected: the shipped rules.
    Rejected,
    /// TCP is intercepted, HTTP/3 dropped without an answer.
    Dropped,
    /// HTTP/3 is carried as UDP flows.
    Carried,
}

impl Variant {
    /// Those that are measured.
    pub fn all(full: bool) -> Vec<Self> {
        match full {
            true => {
                vec![Self::Direct, Self::TcpOnly, Self::Rejected, Self::Dropped, Self::Carried]
            }
            false => vec![Self::TcpOnly, Self::Rejected, Self::Carried],
        }
    }

    /// The protocol by which segments must have come (ALPN).
    pub fn protocol(self) -> &'static str {
        match self {
            Self::Direct | Self::Carried => "h3",
            Self::TcpOnly | Self::Rejected | Self::Dropped => "h2",
        }
    }

    /// Whether all bytes must cross the tunnel.
    pub fn is_tunnelled(self) -> bool {
        self != Self::Direct
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::TcpOnly => "tcp only",
            Self::Rejected => "rejected",
            Self::Dropped => "dropped",
            Self::Carried => "carried",
        })
    }
}

/// The version of IP between browser and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    V4,
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
