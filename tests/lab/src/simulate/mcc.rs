//! Flows whose algorithm MCC selects, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::registry::Algorithm;
use millrace_cc::{ControllerConfig, PathModel, Time};
use millrace_mcc::rules::LuaRules;
use millrace_mcc::{Class, Config, News, Record, RulesText, Selector};
use millrace_sim::Supervisor;
use serde_json::{Map, Value};

use crate::results::series::InUse;
use crate::runner::NotDone;
use crate::scenario::{Group, Scenario};

/// As scenarios call it.
pub const NAME: &str = Config::NAME;

/// The settings in a scenario.
///
/// # Errors
/// They are none.
pub fn config(parameters: &Map<String, Value>) -> Result<Config, NotDone> {
    let config = serde_json::from_value(Value::Object(parameters.clone()));
    config.map_err(|error| NotDone::Failed(format!("{NAME}: {error}")))
}

/// What a flow begins with.
///
/// # Errors
/// The settings can't be used.
pub fn initial(config: &Config) -> Result<Arc<dyn ControllerConfig>, NotDone> {
    let (_, algorithms) = resolve(config)?;
    Ok(Arc::clone(&algorithms[0]))
}

type Candidates = Vec<Arc<dyn ControllerConfig>>;

fn resolve(config: &Config) -> Result<(millrace_mcc::Settings, Candidates), NotDone> {
    let found = millrace_mcc::resolve(config);
    let (settings, algorithms) =
        found.map_err(|error| NotDone::Failed(format!("{NAME}: {error}")))?;
    let controller = |algorithm| match algorithm {
        Algorithm::Controller(controller) => Some(controller),
        Algorithm::Transport { .. } => None,
    };
    Ok((settings, algorithms.into_iter().filter_map(controller).collect()))
}

/// A `[[flow]]` with its Selector.
#[derive(Debug)]
struct Watched {
    selector: Selector<LuaRules>,
    candidates: Candidates,
    class: Class,
    failure: Option<String>,
}

/// All flows of a run: one Selector for each `[[flow]]`.
#[derive(Debug)]
pub struct Mcc {
    groups: Vec<Watched>,
    /// Of each flow the place of its group, if it has one.
    flows: Vec<Option<usize>>,
    in_use: Vec<InUse>,
}

impl Mcc {
    /// Of a scenario's flows.
    ///
    /// # Errors
    /// Settings or rules that can't be used.
    pub fn new(scenario: &Scenario) -> Result<Self, NotDone> {
        let mut all = Self { groups: Vec::new(), flows: Vec::new(), in_use: Vec::new() };
        for group in &scenario.groups {
            let place = if group.cc == NAME { Some(all.add(group)?) } else { None };
            let count = usize::try_from(group.count).unwrap_or(0);
            all.flows.extend(vec![place; count]);
            all.in_use.extend(vec![InUse::new(); count]);
        }
        Ok(all)
    }

    fn add(&mut self, group: &Group) -> Result<usize, NotDone> {
        let config = config(&group.parameters)?;
        let (settings, candidates) = resolve(&config)?;
        let rules = RulesText::read(config.rules.as_deref()).and_then(|text| text.load());
        let rules = rules.map_err(|problem| NotDone::Failed(format!("{NAME}: {problem}")))?;
        let class = group.class();
        let selector = Selector::new(rules, settings);
        self.groups.push(Watched { selector, candidates, class, failure: None });
        Ok(self.groups.len() - 1)
    }

    /// What went wrong with the rules, if anything.
    pub fn failure(&self) -> Option<&str> {
        self.groups.iter().find_map(|group| group.failure.as_deref())
    }

    /// The algorithms that each flow had; empty where nothing was selected.
    pub fn in_use(self) -> Vec<InUse> {
        self.in_use
    }
}

impl Supervisor for Mcc {
    fn watches(&self, flow: usize) -> bool {
        self.flows[flow].is_some()
    }

    fn started(&mut self, flow: usize, now: Time) {
        let Some(group) = self.flows[flow].map(|place| &mut self.groups[place]) else { return };
        let class = group.class;
        group.selector.hear(News::Opened { connection: flow as u64, now, class, algorithm: 0 });
        self.in_use[flow].push((now.as_secs_f64(), group.candidates[0].name().to_owned()));
    }

    fn heard(&mut self, flow: usize, now: Time, path: &PathModel) {
        if let Some(place) = self.flows[flow] {
            self.groups[place].selector.hear(News::Acked(Record::new(flow as u64, now, path)));
        }
    }

    fn decide(&mut self, now: Time) -> Vec<(usize, Arc<dyn ControllerConfig>)> {
        let mut orders = Vec::new();
        for Watched { selector, candidates, failure, .. } in &mut self.groups {
            let give = |order: millrace_mcc::Order| {
                // Connections are flows here, and orders name candidates.
                let to = Arc::clone(&candidates[usize::from(order.algorithm)]);
                orders.push((order.connection as usize, to));
                true
            };
            selector.decide(now, give, |problem| *failure = Some(problem.to_owned()));
        }
        for (flow, to) in &orders {
            self.in_use[*flow].push((now.as_secs_f64(), to.name().to_owned()));
        }
        orders
    }

    fn interval(&self) -> Duration {
        let all = self.groups.iter().map(|group| group.selector.interval());
        all.min().unwrap_or(Duration::from_secs(1))
    }
}
