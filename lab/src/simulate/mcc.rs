//! Flows managed by MCC, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::registry::Algorithm;
use millrace_cc::{ControllerConfig, PathModel, Time};
use millrace_mcc::rules::LuaRules;
use millrace_mcc::{
    Class, Config, ConnectionRecord, PathUpdate, RulesText, Selector, SwitchRequest,
};
use millrace_sim::Supervisor;
use serde_json::{Map, Value};

use crate::checkout;
use crate::results::series::InUse;
use crate::runner::NotDone;
use crate::scenario::{FlowGroup, Scenario};

/// Value of `cc` in scenarios.
pub const NAME: &str = Config::NAME;

/// Reads the MCC settings of a flow.
///
/// # Errors
/// The settings are invalid.
pub fn config(parameters: &Map<String, Value>) -> Result<Config, NotDone> {
    let config = serde_json::from_value(Value::Object(parameters.clone()));
    let config: Config = config.map_err(|error| NotDone::Failed(format!("{NAME}: {error}")))?;
    let rules = config.rules.as_deref().map(checkout::existing);
    Ok(Config { rules, ..config })
}

/// Initial controller of a flow.
///
/// # Errors
/// The settings are invalid.
pub fn initial(config: &Config) -> Result<Arc<dyn ControllerConfig>, NotDone> {
    let (_, algorithms) = resolve(config)?;
    Ok(Arc::clone(&algorithms[0]))
}

type ControllerConfigs = Vec<Arc<dyn ControllerConfig>>;

fn resolve(
    config: &Config,
) -> Result<(millrace_mcc::SelectorSettings, ControllerConfigs), NotDone> {
    let found = millrace_mcc::resolve(config);
    let (settings, algorithms) =
        found.map_err(|error| NotDone::Failed(format!("{NAME}: {error}")))?;
    let controller = |algorithm| match algorithm {
        Algorithm::Controller(controller) => Some(controller),
        Algorithm::Transport { .. } => None,
    };
    Ok((settings, algorithms.into_iter().filter_map(controller).collect()))
}

/// A managed `[[flow]]` with its Selector.
#[derive(Debug)]
struct ManagedGroup {
    selector: Selector<LuaRules>,
    controllers: ControllerConfigs,
    class: Class,
    failure: Option<String>,
}

/// Supervisor of a run: one Selector per managed `[[flow]]`.
#[derive(Debug)]
pub struct MccSupervisor {
    groups: Vec<ManagedGroup>,
    /// Index of the group of each flow; `None` for flows that are not managed.
    flows: Vec<Option<usize>>,
    in_use: Vec<InUse>,
}

impl MccSupervisor {
    /// Creates the Selectors of a scenario.
    ///
    /// # Errors
    /// The settings or rules are invalid.
    pub fn new(scenario: &Scenario) -> Result<Self, NotDone> {
        let mut all = Self { groups: Vec::new(), flows: Vec::new(), in_use: Vec::new() };
        for group in &scenario.groups {
            let index = if group.cc == NAME { Some(all.add(group)?) } else { None };
            let count = usize::try_from(group.count).unwrap_or(0);
            all.flows.extend(vec![index; count]);
            all.in_use.extend(vec![InUse::new(); count]);
        }
        Ok(all)
    }

    fn add(&mut self, group: &FlowGroup) -> Result<usize, NotDone> {
        let config = config(&group.parameters)?;
        let (settings, controllers) = resolve(&config)?;
        let rules = RulesText::read(config.rules.as_deref()).and_then(|text| text.load());
        let rules = rules.map_err(|problem| NotDone::Failed(format!("{NAME}: {problem}")))?;
        let class = group.class();
        let selector = Selector::new(rules, settings);
        self.groups.push(ManagedGroup { selector, controllers, class, failure: None });
        Ok(self.groups.len() - 1)
    }

    /// The first failure of the rules, if any.
    pub fn failure(&self) -> Option<&str> {
        self.groups.iter().find_map(|group| group.failure.as_deref())
    }

    /// The algorithms that each flow used; empty for flows that are not managed.
    pub fn in_use(self) -> Vec<InUse> {
        self.in_use
    }
}

impl Supervisor for MccSupervisor {
    fn watches(&self, flow: usize) -> bool {
        self.flows[flow].is_some()
    }

    fn started(&mut self, flow: usize, now: Time) {
        let Some(group) = self.flows[flow].map(|index| &mut self.groups[index]) else { return };
        let (connection, class) = (flow as u64, group.class);
        group.selector.ingest(PathUpdate::Opened { connection, now, class, algorithm: 0 });
        self.in_use[flow].push((now.as_secs_f64(), group.controllers[0].name().to_owned()));
    }

    fn ingest(&mut self, flow: usize, now: Time, path: &PathModel) {
        if let Some(index) = self.flows[flow] {
            let record = ConnectionRecord::new(flow as u64, now, path);
            self.groups[index].selector.ingest(PathUpdate::Acked(record));
        }
    }

    fn evaluate(&mut self, now: Time) -> Vec<(usize, Arc<dyn ControllerConfig>)> {
        let mut switches = Vec::new();
        for ManagedGroup { selector, controllers, failure, .. } in &mut self.groups {
            let try_send = |request: SwitchRequest| {
                // The connections of this Selector are flows.
                let to = Arc::clone(&controllers[usize::from(request.algorithm)]);
                switches.push((request.connection as usize, to));
                true
            };
            selector.evaluate(now, try_send, |problem| *failure = Some(problem.to_owned()));
        }
        for (flow, to) in &switches {
            self.in_use[*flow].push((now.as_secs_f64(), to.name().to_owned()));
        }
        switches
    }

    fn interval(&self) -> Duration {
        let all = self.groups.iter().map(|group| group.selector.interval());
        all.min().unwrap_or(Duration::from_secs(1))
    }
}
