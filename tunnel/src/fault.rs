//! Faults that a test provokes.
//!
//! The environment variable `MILLRACE_TEST_FAULTS`, read once at the start, is for tests only: a list of
//! `FAULT=DESTINATION`, separated by commas. The connection that carries a flow to that destination
//! suffers that fault. Without the variable nothing here does anything, and no peer can set it.

use std::time::Duration;

/// The name of the environment variable.
const VARIABLE: &str = "MILLRACE_TEST_FAULTS";
/// How long [`Fault::Stall`] keeps a worker from its loop.
pub(crate) const STALL_TIME: Duration = Duration::from_secs(12);

/// What happens, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A panic while the connection is driven.
    Drive,
    /// A panic while one of its packets is handled.
    Receive,
    /// A panic while one of its timers is handled.
    Timer,
    /// The worker stands still.
    Stall,
}

impl Fault {
    const ALL: [(&str, Self); 4] = [
        ("panic-drive", Self::Drive),
        ("panic-receive", Self::Receive),
        ("panic-timer", Self::Timer),
        ("stall", Self::Stall),
    ];
}

/// The faults of this process.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<(Fault, String)>);

impl Faults {
    /// What the environment asks for: nothing, outside of tests.
    pub(crate) fn from_environment() -> Self {
        let Ok(text) = std::env::var(VARIABLE) else { return Self::default() };
        let faults = Self::parse(&text);
        tracing::warn!(?faults, "{VARIABLE} is set: fault injection is active");
        faults
    }

    fn parse(text: &str) -> Self {
        let entry = |entry: &str| {
            let (name, destination) = entry.split_once('=')?;
            let (_, fault) = Fault::ALL.into_iter().find(|(known, _)| *known == name)?;
            Some((fault, destination.to_owned()))
        };
        Self(text.split(',').filter_map(entry).collect())
    }

    /// That of a connection with a flow to `destination`.
    pub(crate) fn of(&self, destination: &str) -> Option<Fault> {
        let found = self.0.iter().find(|(_, wanted)| wanted == destination);
        found.map(|(fault, _)| *fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_others_left_out() {
        let faults = Faults::parse("panic-drive=127.0.0.1:80,stall=[::1]:1,nonsense=x,stall");
        assert_eq!(faults.of("127.0.0.1:80"), Some(Fault::Drive));
        assert_eq!(faults.of("[::1]:1"), Some(Fault::Stall));
        assert_eq!(faults.of("x"), None);
        assert_eq!(faults.0.len(), 2);
    }
}
