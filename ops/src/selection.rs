//! MCC beside the workers: one Selector per worker, with the configured rules.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use millrace_cc::Time;
use millrace_cc::registry::Algorithm;
use millrace_config::{ConfigError, Mcc, Source, Telemetry as TelemetryConfig};
use millrace_mcc::rules::LuaRules;
use millrace_mcc::telemetry::{Sink, TelemetryDirectory, TelemetryWriter};
use millrace_mcc::thread::{RulesSource, SelectorThread, SelectorThreadConfig};
use millrace_mcc::{Explained, RulesText, SelectorSettings, queue, resolve};

use millrace_tunnel::agent::Agent;
use millrace_tunnel::metrics::Metrics;

/// Capacity of a worker's queue of updates: 1 Gbit/s in packets of 1,400 bytes, each acknowledged separately, makes
/// 4,500 records in 50 ms.
const UPDATE_QUEUE_LEN: usize = 8192;
/// Capacity of a worker's queue of switch requests.
const REQUEST_QUEUE_LEN: usize = 1024;

/// The running Selectors. They end when this value is dropped.
pub struct Selection {
    rules: Arc<RulesSource<LuaRules>>,
    settings: SelectorSettings,
    algorithms: Vec<Algorithm>,
    epoch: Instant,
    /// Sink of the episodes, with telemetry.
    sink: Option<Sink>,
    threads: Arc<Mutex<Vec<SelectorThread>>>,
}

impl Selection {
    /// Resolves `config`, which came from `source`. It starts no thread.
    ///
    /// # Errors
    /// An invalid setting, or invalid rules.
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

    /// Records the episodes of every connection, if there is telemetry.
    #[must_use]
    pub fn with_telemetry(mut self, telemetry: Option<&TelemetryWriter>) -> Self {
        self.sink = telemetry.and_then(TelemetryWriter::sink);
        self.settings.keeps_episodes = self.sink.is_some();
        self
    }

    /// Initial algorithm of managed flows.
    pub fn initial(&self) -> &Algorithm {
        &self.algorithms[0]
    }

    /// Starts a worker's Selector and returns the worker's agent.
    ///
    /// # Errors
    /// The system can't create a thread.
    pub fn start(&self, worker: u8, metrics: &Metrics) -> io::Result<Agent> {
        let (agent, queues) = queue::pair(UPDATE_QUEUE_LEN, REQUEST_QUEUE_LEN);
        let began = SystemTime::now() - self.epoch.elapsed();
        let sink = self.sink.clone();
        let keep = move |episodes| sink.as_ref().map_or(0, |sink| sink.submit(episodes, began));
        let thread = SelectorThread::start(SelectorThreadConfig {
            name: format!("selector-{worker}"),
            queues,
            rules: Arc::clone(&self.rules),
            settings: self.settings.clone(),
            epoch: (self.epoch, Time::ZERO),
            report: Box::new(|problem| tracing::warn!(problem, "MCC rules failed; logged once")),
            keep_episodes: Box::new(keep),
        })?;
        metrics.watch_selector(thread.account());
        self.lock().push(thread);
        let agent = Agent::new(agent, self.algorithms.clone(), self.epoch);
        Ok(agent.watching_all(self.sink.is_some()))
    }

    /// Reads the rules again, if MCC runs and `config` uses it. The returned function replaces the rules.
    ///
    /// # Errors
    /// The rules are invalid, or MCC does not run and `config` uses it.
    pub fn reload(
        running: Option<&Self>,
        config: Option<&Mcc>,
        source: &Source,
    ) -> Result<impl FnOnce() + use<>, ConfigError> {
        if running.is_none() && config.is_some() {
            let problem = "can't be enabled by a reload; restart the process";
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

    /// Returns a handle that explains the choice of the rules.
    pub fn explainer(&self) -> Explainer {
        Explainer(Some(Arc::clone(&self.threads)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SelectorThread>> {
        // A panic under the lock leaves the list valid.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Selection {
    /// Ends the threads, which drops their sinks of the telemetry.
    fn drop(&mut self) {
        self.lock().clear();
    }
}

/// Whether a change of `[mcc]` needs a restart: only the rules can be reloaded.
pub fn needs_restart(now: Option<&Mcc>, started: Option<&Mcc>) -> bool {
    let without_rules = |it: &Mcc| Mcc { rules: None, ..it.clone() };
    now.map(without_rules) != started.map(without_rules)
}

/// Starts the telemetry, if it is configured.
///
/// # Errors
/// The directory can't be created or written to.
pub fn telemetry(
    config: Option<&TelemetryConfig>,
    source: &Source,
) -> Result<Option<TelemetryWriter>, ConfigError> {
    let Some(config) = config else { return Ok(None) };
    let directory = TelemetryDirectory {
        path: config.dir.clone(),
        max_bytes: config.max_bytes,
        flush_interval: config.every,
    };
    let report = |problem: &str| tracing::warn!(problem, "failed to write telemetry; logged once");
    let started = TelemetryWriter::start(directory, report).map_err(|error| {
        source.error("telemetry.dir", format!("{}: {error}", config.dir.display()))
    })?;
    Ok(Some(started))
}

fn text(config: &Mcc, source: &Source) -> Result<RulesText, ConfigError> {
    RulesText::read(config.rules.as_deref()).map_err(|problem| source.error("mcc.rules", problem))
}

/// Explains the choice of the rules for running connections.
#[derive(Clone, Default)]
pub struct Explainer(Option<Arc<Mutex<Vec<SelectorThread>>>>);

impl Explainer {
    /// Evaluates the rules for the connection with this serial number; `None` if no Selector knows the connection.
    pub(crate) fn explain(&self, serial: u64) -> Option<Explained> {
        let threads = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().find_map(|thread| thread.explain(serial))
    }
}
