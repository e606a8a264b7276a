//! The Transport field (RFC 2326, Section 12.39).

use std::fmt;

/// The value of a Transport field: the transports that a player accepts, or the one that the server chose. It is
/// written as it was read, but for the parameters that were changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportHeader {
    specs: Vec<TransportSpec>,
}

/// One transport: a protocol and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportSpec {
    parts: Vec<String>,
}

/// The ports of one medium's RTP and RTCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortPair {
    /// Of RTP.
    pub rtp: u16,
    /// Of RTCP; the same one where both share a port (RFC 5761).
    pub rtcp: u16,
}

impl TransportHeader {
    /// Reads a value; commas and semicolons in quotes belong to the quoted text. Folded lines are joined.
    pub fn parse(value: &str) -> Self {
        let unfolded = value.replace(['\r', '\n'], " ");
        let spec =
            |text: &str| TransportSpec { parts: split(text, ';').map(str::to_owned).collect() };
        let specs = split(&unfolded, ',').filter(|it| !it.trim().is_empty()).map(spec).collect();
        Self { specs }
    }

    /// Of several fields: one list (RFC 2326, Section 4.2, by way of RFC 2068).
    pub fn join(fields: impl IntoIterator<Item = Self>) -> Self {
        Self { specs: fields.into_iter().flat_map(|field| field.specs).collect() }
    }

    /// The transport of a medium over UDP without parameters.
    pub fn udp() -> Self {
        let parts = vec!["RTP/AVP".to_owned(), "unicast".to_owned()];
        Self { specs: vec![TransportSpec { parts }] }
    }

    /// Its transports, in order of preference.
    pub fn specs(&self) -> &[TransportSpec] {
        &self.specs
    }

    /// The first transport, for what a server chose: it names one.
    pub fn first_mut(&mut self) -> Option<&mut TransportSpec> {
        self.specs.first_mut()
    }

    /// Keeps the transports that `keep` selects, which may change them.
    pub fn retain(&mut self, keep: impl FnMut(&mut TransportSpec) -> bool) {
        self.specs.retain_mut(keep);
    }

    /// Whether no transport remains.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }
}

impl fmt::Display for TransportHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, spec) in self.specs.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", spec.parts.join(";"))?;
        }
        Ok(())
    }
}

impl TransportSpec {
    /// Whether media travel in UDP datagrams: `RTP/AVP`, `RTP/AVP/UDP`, `MP2T/RTP/UDP`, `RAW/RAW/UDP`. A profile without
    /// a lower transport means UDP.
    pub fn is_udp(&self) -> bool {
        let protocol = self.parts[0].trim().to_ascii_uppercase();
        let parts: Vec<_> = protocol.split('/').collect();
        let udp = match parts[..] {
            ["RTP", _] => true,
            [_, .., lower] => lower == "UDP",
            _ => false,
        };
        udp && self.get("interleaved").is_none()
    }

    /// Whether media go to a multicast group. Without `unicast` that is the default (Section 12.39), but players that
    /// name ports of their own expect media there.
    pub fn is_multicast(&self) -> bool {
        self.get("multicast").is_some()
    }

    /// A parameter's value; an empty one where it has none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parts.iter().skip(1).find_map(|part| match part.split_once('=') {
            Some((key, value)) => key.trim().eq_ignore_ascii_case(name).then(|| value.trim()),
            None => part.trim().eq_ignore_ascii_case(name).then_some(""),
        })
    }

    /// The ports in a parameter; see [`PortPair::parse`].
    pub fn ports(&self, name: &str) -> Option<PortPair> {
        PortPair::parse(self.get(name)?)
    }

    /// Takes a parameter out, however often it is there.
    pub fn remove(&mut self, name: &str) {
        let mut first = true;
        self.parts.retain(|part| {
            let key = part.split('=').next().unwrap_or_default();
            std::mem::take(&mut first) || !key.trim().eq_ignore_ascii_case(name)
        });
    }

    /// Sets a parameter, at its place or at the end; an empty value removes the value. A part with a quote that does
    /// not end stays the last one.
    pub fn set(&mut self, name: &str, value: &str) {
        let shown = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
        let is_it = |part: &String| {
            part.split('=').next().is_some_and(|key| key.trim().eq_ignore_ascii_case(name))
        };
        if let Some(index) = self.parts.iter().skip(1).position(is_it) {
            self.parts[index + 1] = shown;
            return;
        }
        let last = self.parts.len() - 1;
        let part = self.parts[last].trim();
        // After a semicolon at the end nothing is missing.
        let before = last > 0 && (part.is_empty() || part.matches('"').count() % 2 == 1);
        self.parts.insert(if before { last } else { last + 1 }, shown);
    }
}

impl PortPair {
    /// Of `RTP-RTCP` or of `RTP`, where RTCP has the next port (RFC 3550, Section 11). `None` if one is 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (rtp, rtcp) = match text.split_once('-') {
            Some((rtp, rtcp)) => (port(rtp)?, port(rtcp)?),
            None => {
                let rtp = port(text)?;
                (rtp, rtp.checked_add(1)?)
            }
        };
        Some(Self { rtp, rtcp })
    }
}

/// Digits only: no sign.
fn port(text: &str) -> Option<u16> {
    let text = text.trim();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|port| *port > 0)
}

impl fmt::Display for PortPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.rtp, self.rtcp)
    }
}

/// The parts between separators outside of quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |character| {
        quoted ^= character == '"';
        character == separator && !quoted
    })
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
