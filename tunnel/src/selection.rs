//! MCC beside the workers: a Selector for each, with the rules that the configuration names.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use millrace_cc::Time;
use millrace_cc::registry::Algorithm;
use millrace_config::{ConfigError, Mcc, Source, Telemetry as TelemetryConfig};
use millrace_mcc::rules::LuaRules;
use millrace_mcc::telemetry::{Directory, Sink, Telemetry};
use millrace_mcc::thread::{RulesSource, SelectorThread, Start};
use millrace_mcc::{Explained, RulesText, Settings, pipe, resolve};

use crate::agent::Agent;
use crate::metrics::Metrics;

/// What a worker has to say between two turns of its Selector: at 1 Gbit/s in packets of 1,400 bytes,
/// each acknowledged by itself, 50 ms are 4,500.
const NEWS: usize = 8192;
const ORDERS: usize = 1024;

/// See the module. The Selectors end when this is dropped.
pub struct Selection {
    rules: Arc<RulesSource<LuaRules>>,
    settings: Settings,
    algorithms: Vec<Algorithm>,
    epoch: Instant,
    /// Takes what comes of each algorithm, if somebody wants it.
    sink: Option<Sink>,
    threads: Arc<Mutex<Vec<SelectorThread>>>,
}

impl Selection {
    /// As `config` has it, which came from `source`. Nothing runs yet.
    ///
    /// # Errors
    /// What is wrong with it, or with the rules.
    pub fn new(config: &Mcc, source: &Source) -> Result<Self, ConfigError> {
        let (settings, algorithms) =
            resolve(config).map_err(|it| source.error(&format!("mcc.{}", it.key), it.problem))?;
        let text = text(config, source)?;
        Ok(Self {
            rules: RulesSource::new(move || text.load()),
            settings,
            algorithms,
            epoch: Instant::now(),
            sink: None,
            threads: Arc::default(),
        })
    }

    /// Keeps what comes of each algorithm, of every connection.
    #[must_use]
    pub fn with_telemetry(mut self, telemetry: Option<&Telemetry>) -> Self {
        self.sink = telemetry.and_then(Telemetry::sink);
        self.settings.keeps_episodes = self.sink.is_some();
        self
    }

    /// What flows begin with whose algorithm is selected.
    pub fn initial(&self) -> &Algorithm {
        &self.algorithms[0]
    }

    /// Starts a worker's Selector; the worker's part of it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(&self, worker: u8, metrics: &Metrics) -> io::Result<Agent> {
        let (agent, pipes) = pipe::pair(NEWS, ORDERS);
        let began = SystemTime::now() - self.epoch.elapsed();
        let sink = self.sink.clone();
        let keep = move |episodes| sink.as_ref().map_or(0, |sink| sink.take(episodes, began));
        let thread = SelectorThread::start(Start {
            name: format!("selector-{worker}"),
            pipes,
            rules: Arc::clone(&self.rules),
            settings: self.settings.clone(),
            epoch: (self.epoch, Time::ZERO),
            tell: Box::new(|problem| tracing::warn!(problem, "rules of [mcc]; logged once")),
            keep: Box::new(keep),
        })?;
        metrics.watch_selector(thread.account());
        self.lock().push(thread);
        let agent = Agent::new(agent, self.algorithms.clone(), self.epoch);
        Ok(agent.watching_all(self.sink.is_some()))
    }

    /// Reads the rules anew, if anything is selected, before and by `config`. The change is made by what
    /// is returned.
    ///
    /// # Errors
    /// They can't be used.
    pub fn reload(
        running: Option<&Self>,
        config: Option<&Mcc>,
        source: &Source,
    ) -> Result<impl FnOnce() + use<>, ConfigError> {
        if running.is_none() && config.is_some() {
            let problem = "can't begin in a process that runs without: restart it";
            return Err(source.error("mcc", problem));
        }
        let text = config.map(|config| text(config, source)).transpose()?;
        let replaced = running.map(|it| Arc::clone(&it.rules)).zip(text);
        Ok(move || {
            if let Some((rules, text)) = replaced {
                rules.replace(move || text.load());
            }
        })
    }

    /// For whoever asks which rule fired.
    pub fn explainer(&self) -> Explainer {
        Explainer(Some(Arc::clone(&self.threads)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SelectorThread>> {
        // A list of threads is right whatever thread panicked beside it.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Selection {
    /// Nothing of the telemetry's is held after this.
    fn drop(&mut self) {
        self.lock().clear();
    }
}

/// Whether anything but the rules is different.
pub fn needs_restart(now: Option<&Mcc>, started: Option<&Mcc>) -> bool {
    let without_rules = |it: &Mcc| Mcc { rules: None, ..it.clone() };
    now.map(without_rules) != started.map(without_rules)
}

/// Begins to write telemetry, if it is configured.
///
/// # Errors
/// The directory can't be made or written to.
pub fn telemetry(
    config: Option<&TelemetryConfig>,
    source: &Source,
) -> Result<Option<Telemetry>, ConfigError> {
    let Some(config) = config else { return Ok(None) };
    let directory =
        Directory { path: config.dir.clone(), max_bytes: config.max_bytes, every: config.every };
    let tell = |problem: &str| tracing::warn!(problem, "telemetry is not written; logged once");
    let started = Telemetry::start(directory, tell).map_err(|error| {
        source.error("telemetry.dir", format!("{}: {error}", config.dir.display()))
    })?;
    Ok(Some(started))
}

fn text(config: &Mcc, source: &Source) -> Result<RulesText, ConfigError> {
    RulesText::read(config.rules.as_deref()).map_err(|problem| source.error("mcc.rules", problem))
}

/// Says what rules make of connections that run.
#[derive(Clone, Default)]
pub struct Explainer(Option<Arc<Mutex<Vec<SelectorThread>>>>);

impl Explainer {
    /// Of the connection with this serial number; `None` when no Selector knows it.
    pub(crate) fn explain(&self, serial: u64) -> Option<Explained> {
        let threads = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().find_map(|thread| thread.explain(serial))
    }
}
