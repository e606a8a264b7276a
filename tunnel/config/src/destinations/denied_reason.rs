//! Why a destination is denied.

/// Why a destination was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeniedReason {
    /// No allow entry has the address.
    NotListed,
    /// An allow entry has the address, but none has the port too.
    PortNotListed,
    /// `0.0.0.0/8` or `::`; Linux takes `0.0.0.0` for itself.
    Unspecified,
    /// `127.0.0.0/8` or `::1`.
    Loopback,
    /// `169.254.0.0/16` or `fe80::/10`.
    LinkLocal,
    /// An address at which clouds hand out credentials.
    Metadata,
    /// `224.0.0.0/4` or `ff00::/8`.
    Multicast,
    /// `255.255.255.255`.
    Broadcast,
    /// `240.0.0.0/4`.
    Reserved,
    /// `64:ff9b:1::/48`, of which only the operator knows how it is translated.
    LocalTranslation,
    /// An address of the server itself.
    OwnAddress,
}

impl DeniedReason {
    /// All of them, for metrics.
    pub const ALL: [Self; 11] = [
        Self::NotListed,
        Self::PortNotListed,
        Self::Unspecified,
        Self::Loopback,
        Self::LinkLocal,
        Self::Metadata,
        Self::Multicast,
        Self::Broadcast,
        Self::Reserved,
        Self::LocalTranslation,
        Self::OwnAddress,
    ];

    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotListed => "not_listed",
            Self::PortNotListed => "port_not_listed",
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link_local",
            Self::Metadata => "metadata",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Reserved => "reserved",
            Self::LocalTranslation => "local_translation",
            Self::OwnAddress => "own_address",
        }
    }
}
