//! Rules in Lua 5.4: `function select(flow) ... return name, reason end`. docs/mcc.md describes them.
//!
//! The sandbox has the base library, `math`, `string` and `table` without what reaches outside, loads code,
//! or runs for long in one instruction, where no limit can stop it: patterns (exponential time),
//! `table.move` and finalizers, and `pcall`, which would catch the limit's own error.

use std::cell::Cell;
use std::rc::Rc;

use mlua::serde::SerializeOptions;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaSerdeExt, MultiValue, StdLib, Table, Value, VmState,
};
use thiserror::Error;

use super::{Choice, Rules};
use crate::Facts;

/// For all that the rules keep.
const MAX_MEMORY_BYTES: usize = 4 << 20;
/// For one call; the usual rule takes some dozens.
const MAX_INSTRUCTIONS: u32 = 100_000;
/// For loading, and for each test.
const MAX_LOAD_INSTRUCTIONS: u32 = 10_000_000;
/// How often they are counted.
const COUNTED_EVERY: u32 = 1_000;
/// Of a reason.
const MAX_REASON_CHARS: usize = 200;

/// Of each library what rules may have.
const BASE: [&str; 10] = [
    "assert", "error", "ipairs", "next", "pairs", "rawequal", "rawlen", "tonumber", "tostring",
    "type",
];
const STRING: [&str; 7] = ["byte", "char", "format", "len", "lower", "sub", "upper"];
const TABLE: [&str; 6] = ["concat", "insert", "pack", "remove", "sort", "unpack"];

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

/// Rules of one file.
#[derive(Debug)]
pub struct LuaRules {
    lua: Lua,
    select: Function,
    flow: Table,
    budget: Rc<Cell<u32>>,
    name: String,
}

impl LuaRules {
    /// Loads `text`; `name` is what errors call it.
    ///
    /// # Errors
    /// It is no Lua, takes too much time or memory, or has no `select`.
    pub fn load(name: &str, text: &str) -> Result<Self, RulesError> {
        let budget = Rc::new(Cell::new(MAX_LOAD_INSTRUCTIONS));
        let load = || -> mlua::Result<(Lua, Option<Function>, Table)> {
            let lua = sandbox(&budget)?;
            lua.load(text).set_name(format!("@{name}")).exec()?;
            let select = lua.globals().get::<Option<Function>>("select")?;
            let flow = lua.create_table()?;
            Ok((lua, select, flow))
        };
        let (lua, select, flow) = load().map_err(|error| RulesError::Lua(first_line(&error)))?;
        let select = select.ok_or_else(|| RulesError::NoSelect(name.to_owned()))?;
        Ok(Self { lua, select, flow, budget, name: name.to_owned() })
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
                self.budget.set(MAX_LOAD_INSTRUCTIONS);
                test.call::<()>(()).map_err(|error| first_line(&error))
            });
            (name, done)
        };
        tests.into_iter().map(run).collect()
    }

    fn helper(&self) -> Result<(), String> {
        // What is not there is nil, as in `tell`.
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
        self.tell(facts)?;
        self.budget.set(MAX_INSTRUCTIONS);
        let mut answer = self.select.call::<MultiValue>(&self.flow)?;
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

    /// The same table each time, with every field set anew.
    fn tell(&self, facts: &Facts) -> mlua::Result<()> {
        let flow = &self.flow;
        flow.raw_set("connection", facts.connection)?;
        flow.raw_set("class", facts.class.as_str())?;
        flow.raw_set("algorithm", facts.algorithm.as_str())?;
        flow.raw_set("switches", facts.switches)?;
        for (name, value) in [
            ("age_s", facts.age_s),
            ("path_age_s", facts.path_age_s),
            ("since_switch_s", facts.since_switch_s),
            ("min_rtt_ms", facts.min_rtt_ms),
            ("max_rtt_ms", facts.max_rtt_ms),
            ("recent_min_rtt_ms", facts.recent_min_rtt_ms),
            ("recent_max_rtt_ms", facts.recent_max_rtt_ms),
            ("latest_rtt_ms", facts.latest_rtt_ms),
            ("smoothed_rtt_ms", facts.smoothed_rtt_ms),
            ("rtt_variation_ms", facts.rtt_variation_ms),
            ("delivery_mbps", facts.delivery_mbps),
            ("mean_delivery_mbps", facts.mean_delivery_mbps),
            ("max_delivery_mbps", facts.max_delivery_mbps),
            ("peak_delivery_mbps", facts.peak_delivery_mbps),
            ("loss", facts.loss),
            ("loss_short", facts.loss_short),
            ("ecn_ce", facts.ecn_ce),
            ("window_bytes", facts.window_bytes),
            ("delivered_bytes", facts.delivered_bytes),
        ] {
            flow.raw_set(name, value)?;
        }
        let Some(player) = facts.player else { return flow.raw_set("player", Value::Nil) };
        let table = self.lua.create_table()?;
        table.raw_set("buffer_s", player.buffer_s)?;
        table.raw_set("bitrate_kbps", player.bitrate_kbps)?;
        table.raw_set("top_bitrate_kbps", player.top_bitrate_kbps)?;
        table.raw_set("starved", player.starved)?;
        table.raw_set("age_s", player.age_s)?;
        flow.raw_set("player", table)
    }
}

impl Rules for LuaRules {
    fn select(&mut self, facts: &Facts) -> Result<Option<Choice>, String> {
        self.call(facts).map_err(|error| first_line(&error))
    }
}

/// A state with nothing in it but what rules may have.
fn sandbox(budget: &Rc<Cell<u32>>) -> mlua::Result<Lua> {
    let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(true))?;
    let globals = lua.globals();
    keep(&globals.get::<Table>("string")?, &STRING)?;
    keep(&globals.get::<Table>("table")?, &TABLE)?;
    let mut base = BASE.to_vec();
    base.extend(["math", "string", "table", "_G", "_VERSION"]);
    keep(&globals, &base)?;
    lua.set_memory_limit(MAX_MEMORY_BYTES)?;
    let budget = Rc::clone(budget);
    lua.set_hook(
        HookTriggers::new().every_nth_instruction(COUNTED_EVERY),
        move |_, _| match budget.get().checked_sub(COUNTED_EVERY) {
            Some(left) => {
                budget.set(left);
                Ok(VmState::Continue)
            }
            None => Err(mlua::Error::runtime("took too many instructions")),
        },
    )?;
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
