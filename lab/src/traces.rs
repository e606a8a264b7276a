//! Recorded links, each read once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_cc::Bandwidth;
use millrace_sim::{LinkRate, RateTrace};

use crate::checkout;
use crate::runner::NotDone;
use crate::scenario::{Rate, Scenario, ScenarioError, TraceFormat};

/// Where traces are looked for unless the command line or [`VARIABLE`] says otherwise.
const DEFAULT_DIRECTORY: &str = "../shared/traces";
/// Names the directory of traces.
const VARIABLE: &str = "MILLRACE_TRACES";

/// The traces beside scenarios and of a directory.
#[derive(Debug)]
pub struct Traces {
    directory: PathBuf,
    read: Mutex<HashMap<(PathBuf, TraceFormat), Arc<RateTrace>>>,
}

impl Traces {
    /// Those of `given`, else of [`VARIABLE`], else of [`DEFAULT_DIRECTORY`].
    #[must_use]
    pub fn find(given: Option<&Path>) -> Self {
        let named = || std::env::var_os(VARIABLE).map(PathBuf::from);
        let directory = given.map(Path::to_owned).or_else(named);
        let default = || checkout::existing(Path::new(DEFAULT_DIRECTORY));
        Self { directory: directory.unwrap_or_else(default), read: Mutex::default() }
    }

    /// The directory of traces.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A trace by its path: below the directory `beside`, else below the directory of traces.
    ///
    /// # Errors
    /// [`NotDone::Skipped`] when there is no such file; [`NotDone::Failed`] when it is malformed.
    pub fn get(
        &self,
        name: &str,
        format: TraceFormat,
        beside: Option<&Path>,
    ) -> Result<Arc<RateTrace>, NotDone> {
        let places = beside.into_iter().chain([self.directory.as_path()]);
        let mut places: Vec<PathBuf> = places.map(|directory| directory.join(name)).collect();
        // An absolute path is the same everywhere.
        places.dedup();
        let Some(path) = places.iter().find(|path| path.is_file()) else {
            let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
            return Err(NotDone::Skipped(format!(
                "there is no trace {}; --traces or {VARIABLE} names another directory of traces",
                places.join(" nor ")
            )));
        };
        let key = (path.clone(), format);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trace) = read.get(&key) {
            return Ok(trace.clone());
        }
        let trace = match format {
            TraceFormat::Mahimahi => RateTrace::mahimahi_file(path),
            TraceFormat::Throughput => RateTrace::throughput_file(path),
        };
        let trace = Arc::new(trace.map_err(|error| NotDone::Failed(error.to_string()))?);
        read.insert(key, trace.clone());
        Ok(trace)
    }

    /// The rate of a scenario's link.
    ///
    /// # Errors
    /// As [`Traces::get`].
    pub fn link_rate(&self, rate: &Rate) -> Result<LinkRate, NotDone> {
        match rate {
            Rate::Constant { rate_mbps } => {
                Ok(LinkRate::Constant(Bandwidth::from_mbps(*rate_mbps)))
            }
            Rate::Trace { trace, trace_format, reference } => {
                let trace = self.get(trace, *trace_format, reference.file.parent())?;
                Ok(LinkRate::Trace(trace))
            }
        }
    }

    /// Checks that the trace of a scenario can be read.
    ///
    /// # Errors
    /// It is missing or malformed.
    pub fn check(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        let rate = &scenario.link.rate;
        let (Err(problem), Rate::Trace { reference, .. }) = (self.link_rate(rate), rate) else {
            return Ok(());
        };
        Err(ScenarioError {
            file: reference.file.clone(),
            place: Some(reference.place),
            key: Some("link.trace".to_owned()),
            problem: problem.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scenario::ScenarioFile;

    fn scenario(directory: &Path, trace: &str) -> Scenario {
        let text = format!(
            "name = \"a\"\ntitle = \"A\"\nduration_s = 1\n[link]\ntrace = \"{trace}\"\n\
             trace_format = \"throughput\"\nrtt_ms = 10\nbuffer_bytes = 15000\n[[flow]]\ncc = \"cubic\"\n"
        );
        let file = ScenarioFile::parse(&text, &directory.join("a.toml")).unwrap();
        file.cells.into_iter().next().unwrap().scenario
    }

    #[test]
    fn traces_beside_the_scenario_come_before_those_of_the_directory() {
        let (beside, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let traces = Traces::find(Some(others.path()));
        let rate = |name| match traces.link_rate(&scenario(beside.path(), name).link.rate).unwrap()
        {
            LinkRate::Trace(trace) => trace.mean_rate().mbps(),
            LinkRate::Constant(_) => panic!("a constant rate"),
        };
        fs::write(others.path().join("both.txt"), "0 1\n").unwrap();
        fs::write(others.path().join("other.txt"), "0 2\n").unwrap();
        fs::write(beside.path().join("both.txt"), "0 3\n").unwrap();
        assert_eq!((rate("both.txt"), rate("other.txt")), (3.0, 2.0));
        let absolute = others.path().join("both.txt");
        assert_eq!(rate(absolute.to_str().unwrap()), 1.0);
    }

    #[test]
    fn missing_and_malformed_traces_are_refused_with_their_place() {
        let (beside, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let traces = Traces::find(Some(others.path()));
        let error = traces.check(&scenario(beside.path(), "x.txt")).unwrap_err().to_string();
        let place = |directory: &Path| directory.join("x.txt").display().to_string();
        let expected = format!(
            "{}:5:9: link.trace: there is no trace {} nor {}; --traces or MILLRACE_TRACES names another directory \
             of traces",
            beside.path().join("a.toml").display(),
            place(beside.path()),
            place(others.path()),
        );
        assert_eq!(error, expected);
        fs::write(beside.path().join("x.txt"), "0 1\n1 x\n").unwrap();
        let error = traces.check(&scenario(beside.path(), "x.txt")).unwrap_err().to_string();
        assert!(error.contains(":5:9: link.trace: ") && error.contains("x.txt:2: "), "{error}");
        fs::write(beside.path().join("x.txt"), "0 1\n1 2\n").unwrap();
        traces.check(&scenario(beside.path(), "x.txt")).unwrap();
    }
}
