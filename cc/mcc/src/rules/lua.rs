//! Rules in Lua 5.4: `function select(flow) ... return name, reason end`. docs/mcc.md describes them.
//!
//! The sandbox has the base library, `math`, `string` and `table` without what reaches outside, loads code,
//! or runs for long in one instruction, where no limit can stop it: patterns (exponential time),
//! `table.move` and finalizers, and `pcall`, which would catch the limit's own error. A call is limited in
//! instructions, processor time and memory; time is looked at before each function call too, so that at most
//! one function of a library, which is bounded by the memory, runs beyond it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mlua::debug::DebugEvent;
use mlua::serde::SerializeOptions;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaSerdeExt, MultiValue, StdLib, Table, Value, VmState,
};
use nix::time::{ClockId, clock_gettime};
use thiserror::Error;

use super::{Choice, Rules};
use crate::Facts;

/// For all that the rules keep.
const MAX_MEMORY_BYTES: usize = 4 << 20;
/// How often instructions are counted, and the time looked at. One can copy what the memory holds: 50 of them
/// take at most some 20 ms.
const COUNTED_EVERY: u32 = 50;
/// Of a reason.
const MAX_REASON_CHARS: usize = 200;

/// Of each library what rules may have.
const BASE: [&str; 10] = [
    "assert", "error", "ipairs", "next", "pairs", "rawequal", "rawlen", "tonumber", "tostring",
    "type",
];
const STRING: [&str; 7] = ["byte", "char", "format", "len", "lower", "sub", "upper"];
const TABLE: [&str; 6] = ["concat", "insert", "pack", "remove", "sort", "unpack"];

/// What one call may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    instructions: u32,
    /// Of the processor, so that a busy machine does not make good rules fail.
    time: Duration,
}

/// For one decision; the usual rule takes some dozen instructions and microseconds.
const SELECT_LIMITS: Limits = Limits { instructions: 100_000, time: Duration::from_millis(50) };
/// For loading, and for each test.
const LOAD_LIMITS: Limits = Limits { instructions: 10_000_000, time: Duration::from_secs(2) };

/// What is left of the limits of the call that runs.
#[derive(Debug)]
struct Budget {
    /// What errors call the rules.
    name: String,
    instructions: Cell<u32>,
    deadline: Cell<Duration>,
    time: Cell<Duration>,
}

impl Budget {
    fn begin(&self, limits: Limits) {
        self.instructions.set(limits.instructions);
        self.time.set(limits.time);
        self.deadline.set(processor_time() + limits.time);
    }

    /// Some instructions were run, or a function is about to be called.
    fn spend(&self, instructions: u32) -> mlua::Result<VmState> {
        let Some(left) = self.instructions.get().checked_sub(instructions) else {
            let problem = format!("{}: took too many instructions", self.name);
            return Err(mlua::Error::runtime(problem));
        };
        self.instructions.set(left);
        if processor_time() > self.deadline.get() {
            let problem =
                format!("{}: took more than {:?} of processor time", self.name, self.time.get());
            return Err(mlua::Error::runtime(problem));
        }
        Ok(VmState::Continue)
    }
}

/// What this thread has used.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::MAX, Duration::from)
}

/// Rules that can't be used.
#[derive(Debug, Error)]
pub enum RulesError {
    /// Lua doesn't take it: what, and where.
    #[error("{0}")]
    Lua(String),
    /// There is no function that could be asked.
    #[error("{0}: there is no function select(flow)")]
    NoSelect(String),
}

type Number = (&'static str, fn(&Facts) -> f64);

/// Of a connection's numbers, those that have a fraction.
const NUMBERS: [Number; 20] = [
    ("age_s", |facts| facts.age_s),
    ("path_age_s", |facts| facts.path_age_s),
    ("rtt_ratio", |facts| facts.rtt_ratio),
    ("since_switch_s", |facts| facts.since_switch_s),
    ("min_rtt_ms", |facts| facts.min_rtt_ms),
    ("max_rtt_ms", |facts| facts.max_rtt_ms),
    ("recent_min_rtt_ms", |facts| facts.recent_min_rtt_ms),
    ("recent_max_rtt_ms", |facts| facts.recent_max_rtt_ms),
    ("latest_rtt_ms", |facts| facts.latest_rtt_ms),
    ("smoothed_rtt_ms", |facts| facts.smoothed_rtt_ms),
    ("rtt_variation_ms", |facts| facts.rtt_variation_ms),
    ("delivery_mbps", |facts| facts.delivery_mbps),
    ("mean_delivery_mbps", |facts| facts.mean_delivery_mbps),
    ("max_delivery_mbps", |facts| facts.max_delivery_mbps),
    ("peak_delivery_mbps", |facts| facts.peak_delivery_mbps),
    ("loss", |facts| facts.loss),
    ("loss_short", |facts| facts.loss_short),
    ("ecn_ce", |facts| facts.ecn_ce),
    ("window_bytes", |facts| facts.window_bytes),
    ("delivered_bytes", |facts| facts.delivered_bytes),
];

/// Rules of one file.
#[derive(Debug)]
pub struct LuaRules {
    lua: Lua,
    ask: Function,
    budget: Rc<Budget>,
    name: String,
}

impl LuaRules {
    /// Loads `text`; `name` is what errors call it.
    ///
    /// # Errors
    /// It is no Lua, takes too much time or memory, or has no `select`.
    pub fn load(name: &str, text: &str) -> Result<Self, RulesError> {
        let budget = Rc::new(Budget {
            name: name.to_owned(),
            instructions: Cell::default(),
            deadline: Cell::default(),
            time: Cell::default(),
        });
        budget.begin(LOAD_LIMITS);
        let load = || -> mlua::Result<(Lua, Option<Function>)> {
            let lua = sandbox(&budget)?;
            lua.load(text).set_name(format!("@{name}")).exec()?;
            let select = lua.globals().get::<Option<Function>>("select")?;
            let ask = select.map(|select| asker(&lua, select)).transpose()?;
            Ok((lua, ask))
        };
        let (lua, ask) = load().map_err(|error| RulesError::Lua(first_line(&error)))?;
        let ask = ask.ok_or_else(|| RulesError::NoSelect(name.to_owned()))?;
        Ok(Self { lua, ask, budget, name: name.to_owned() })
    }

    /// Runs the file's own tests: its functions whose names begin with `test_`. In them `flow{...}` makes
    /// what `select` is told, with the usual values for what is left out. Names, and what failed.
    pub fn test(&mut self) -> Vec<(String, Result<(), String>)> {
        let mut tests: Vec<(String, Function)> = Vec::new();
        for pair in self.lua.globals().pairs::<String, Value>() {
            if let Ok((name, Value::Function(test))) = pair
                && name.starts_with("test_")
            {
                tests.push((name, test));
            }
        }
        tests.sort_by(|(a, _), (b, _)| a.cmp(b));
        let helper = self.helper();
        let run = |(name, test): (String, Function)| {
            let done = helper.clone().and_then(|()| {
                self.budget.begin(LOAD_LIMITS);
                test.call::<()>(()).map_err(|error| first_line(&error))
            });
            (name, done)
        };
        tests.into_iter().map(run).collect()
    }

    fn helper(&self) -> Result<(), String> {
        // What is not there is nil, as in `asker`.
        let options = SerializeOptions::new().serialize_none_to_null(false);
        let make = self.lua.create_function(move |lua, given: Table| {
            let flow = match lua.to_value_with(&Facts::default(), options)? {
                Value::Table(flow) => flow,
                other => return Ok(other),
            };
            for pair in given.pairs::<String, Value>() {
                let (key, value) = pair?;
                let known = flow.contains_key(&*key)? || key == "player";
                if !known {
                    let problem = format!("flow: {key} is nothing that flows have");
                    return Err(mlua::Error::runtime(problem));
                }
                flow.set(key, value)?;
            }
            Ok(Value::Table(flow))
        });
        make.and_then(|make| self.lua.globals().set("flow", make))
            .map_err(|error| first_line(&error))
    }

    fn call(&self, facts: &Facts) -> mlua::Result<Option<Choice>> {
        let arguments = self.arguments(facts)?;
        self.budget.begin(SELECT_LIMITS);
        let mut answer = self.ask.call::<MultiValue>(arguments)?;
        let algorithm = match answer.pop_front() {
            None | Some(Value::Nil) => return Ok(None),
            Some(Value::String(name)) => name.to_string_lossy(),
            Some(other) => {
                let problem = format!(
                    "{}: select returned a {}; wanted is the name of an algorithm, or nil",
                    self.name,
                    other.type_name()
                );
                return Err(mlua::Error::runtime(problem));
            }
        };
        let reason = match answer.pop_front() {
            Some(Value::String(reason)) => {
                Some(reason.to_string_lossy().chars().take(MAX_REASON_CHARS).collect())
            }
            _ => None,
        };
        Ok(Some(Choice { algorithm, reason }))
    }

    /// What the asker takes, in its order.
    fn arguments(&self, facts: &Facts) -> mlua::Result<MultiValue> {
        let text = |text: &str| self.lua.create_string(text).map(Value::String);
        let mut values = Vec::with_capacity(NUMBERS.len() + 9);
        values.push(Value::Integer(facts.connection.cast_signed()));
        values.push(text(facts.class.as_str())?);
        values.push(text(&facts.algorithm)?);
        values.push(Value::Integer(facts.switches.cast_signed()));
        values.extend(NUMBERS.iter().map(|(_, of)| Value::Number(of(facts))));
        if let Some(player) = facts.player {
            let number = |number: Option<f64>| number.map_or(Value::Nil, Value::Number);
            values.extend([
                number(player.buffer_s),
                number(player.bitrate_kbps),
                number(player.top_bitrate_kbps),
                Value::Boolean(player.starved),
                Value::Number(player.age_s),
            ]);
        }
        Ok(MultiValue::from_vec(values))
    }
}

/// Calls `select` with the same table each time, every field of it set anew. In Lua, as a call from outside
/// costs as much as some dozen instructions, and there would be one for each field.
fn asker(lua: &Lua, select: Function) -> mlua::Result<Function> {
    let names = NUMBERS.map(|(name, _)| name);
    let all = ["connection", "class", "algorithm", "switches"].into_iter().chain(names);
    let (mut given, mut set) = (String::new(), String::new());
    for name in all {
        given.push_str(&format!("{name}, "));
        set.push_str(&format!("flow.{name} = {name}\n"));
    }
    let text = format!(
        "local select, flow = ...
         return function({given} buffer_s, bitrate_kbps, top_bitrate_kbps, starved, player_age_s)
           {set}
           flow.player = player_age_s and {{
             buffer_s = buffer_s, bitrate_kbps = bitrate_kbps, top_bitrate_kbps = top_bitrate_kbps,
             starved = starved, age_s = player_age_s,
           }}
           return select(flow)
         end"
    );
    lua.load(text).set_name("=ask").call((select, lua.create_table()?))
}

impl Rules for LuaRules {
    fn select(&mut self, facts: &Facts) -> Result<Option<Choice>, String> {
        self.call(facts).map_err(|error| first_line(&error))
    }
}

/// Without a function to compare by, all of a sort would be one function of a library, and each comparison of two
/// long strings takes long.
const SORT: &str = "
    local sort, less = table.sort, function(a, b) return a < b end
    function table.sort(list, order) return sort(list, order or less) end
";

/// A state with nothing in it but what rules may have.
fn sandbox(budget: &Rc<Budget>) -> mlua::Result<Lua> {
    let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(true))?;
    let globals = lua.globals();
    keep(&globals.get::<Table>("string")?, &STRING)?;
    keep(&globals.get::<Table>("table")?, &TABLE)?;
    let mut base = BASE.to_vec();
    base.extend(["math", "string", "table", "_G", "_VERSION"]);
    keep(&globals, &base)?;
    lua.load(SORT).set_name("=sort").exec()?;
    lua.set_memory_limit(MAX_MEMORY_BYTES)?;
    let budget = Rc::clone(budget);
    let triggers = HookTriggers::new().on_calls().every_nth_instruction(COUNTED_EVERY);
    lua.set_hook(triggers, move |_, debug| match debug.event() {
        DebugEvent::Count => budget.spend(COUNTED_EVERY),
        _ => budget.spend(0),
    })?;
    Ok(lua)
}

/// Removes all but these from a library.
fn keep(library: &Table, names: &[&str]) -> mlua::Result<()> {
    let all: Vec<String> =
        library.pairs::<String, Value>().map(|pair| Ok(pair?.0)).collect::<mlua::Result<_>>()?;
    for name in all.iter().filter(|name| !names.contains(&name.as_str())) {
        library.set(name.as_str(), Value::Nil)?;
    }
    Ok(())
}

/// Without the traceback, which is of no use to who writes rules.
fn first_line(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("runtime error: ").trim_start_matches("syntax error: ").to_owned()
}

#[cfg(test)]
mod tests;
