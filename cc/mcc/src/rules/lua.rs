//! Rules in Lua 5.4: `function select(flow) ... return name, reason end`. docs/research/mcc.md describes them.
//!
//! The sandbox has the base library, `math`, `string` and `table`, without functions that reach outside or load
//! code. It also lacks functions that run long within one instruction, where no limit can stop them (patterns,
//! `table.move`, finalizers), and `pcall`, which would catch the error of a limit. A call is limited in
//! instructions, processor time and memory. Time is also checked before each function call, so that at most one
//! library function, bounded by the memory limit, runs beyond the time limit.

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

use super::select::{Choice, SelectionRules};
use crate::RuleInput;

/// Memory limit of a Lua state.
const MAX_MEMORY_BYTES: usize = 4 << 20;
/// Number of instructions between two checks of the limits. One instruction can copy as much as the memory limit.
const CHECK_INTERVAL_INSTRUCTIONS: u32 = 50;
/// Maximum length of a reason.
const MAX_REASON_CHARS: usize = 200;

/// Functions of the libraries that the sandbox keeps.
const BASE: [&str; 10] = [
    "assert", "error", "ipairs", "next", "pairs", "rawequal", "rawlen", "tonumber", "tostring",
    "type",
];
const STRING: [&str; 7] = ["byte", "char", "format", "len", "lower", "sub", "upper"];
const TABLE: [&str; 6] = ["concat", "insert", "pack", "remove", "sort", "unpack"];

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
struct CallLimits {
    instructions: u32,
    /// Processor time, so that rules do not fail because the machine is busy.
    time: Duration,
}

/// Limits of one evaluation.
const SELECT_LIMITS: CallLimits =
    CallLimits { instructions: 100_000, time: Duration::from_millis(50) };
/// Limits of loading, and of each test.
const LOAD_LIMITS: CallLimits =
    CallLimits { instructions: 10_000_000, time: Duration::from_secs(2) };

/// Remaining limits of the current call.
#[derive(Debug)]
struct Budget {
    /// Name of the rules in errors.
    name: String,
    instructions: Cell<u32>,
    deadline: Cell<Duration>,
    time: Cell<Duration>,
}

impl Budget {
    fn begin(&self, limits: CallLimits) {
        self.instructions.set(limits.instructions);
        self.time.set(limits.time);
        self.deadline.set(processor_time() + limits.time);
    }

    /// Accounts for instructions, and checks the limits.
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

/// Processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::MAX, Duration::from)
}

/// Invalid rules.
#[derive(Debug, Error)]
pub enum RulesError {
    /// An error of Lua, with its location.
    #[error("{0}")]
    Lua(String),
    /// The function `select` is missing.
    #[error("{0}: there is no function select(flow)")]
    NoSelect(String),
}

type Number = (&'static str, fn(&RuleInput) -> f64);

/// The fields of type `f64`.
const NUMBERS: [Number; 20] = [
    ("age_s", |input| input.age_s),
    ("path_age_s", |input| input.path_age_s),
    ("rtt_ratio", |input| input.rtt_ratio),
    ("since_switch_s", |input| input.since_switch_s),
    ("min_rtt_ms", |input| input.min_rtt_ms),
    ("max_rtt_ms", |input| input.max_rtt_ms),
    ("recent_min_rtt_ms", |input| input.recent_min_rtt_ms),
    ("recent_max_rtt_ms", |input| input.recent_max_rtt_ms),
    ("latest_rtt_ms", |input| input.latest_rtt_ms),
    ("smoothed_rtt_ms", |input| input.smoothed_rtt_ms),
    ("rtt_variation_ms", |input| input.rtt_variation_ms),
    ("delivery_mbps", |input| input.delivery_mbps),
    ("mean_delivery_mbps", |input| input.mean_delivery_mbps),
    ("max_delivery_mbps", |input| input.max_delivery_mbps),
    ("peak_delivery_mbps", |input| input.peak_delivery_mbps),
    ("loss", |input| input.loss),
    ("loss_short", |input| input.loss_short),
    ("ecn_ce", |input| input.ecn_ce),
    ("window_bytes", |input| input.window_bytes),
    ("delivered_bytes", |input| input.delivered_bytes),
];

/// The rules of one file.
#[derive(Debug)]
pub struct LuaRules {
    lua: Lua,
    call_select: Function,
    budget: Rc<Budget>,
    name: String,
}

impl LuaRules {
    /// Loads `text`; errors refer to it as `name`.
    ///
    /// # Errors
    /// The text is not valid Lua, exceeds a limit, or does not define `select`.
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
            let call_select = select.map(|select| select_caller(&lua, select)).transpose()?;
            Ok((lua, call_select))
        };
        let (lua, call_select) = load().map_err(|error| RulesError::Lua(first_line(&error)))?;
        let call_select = call_select.ok_or_else(|| RulesError::NoSelect(name.to_owned()))?;
        Ok(Self { lua, call_select, budget, name: name.to_owned() })
    }

    /// Runs the tests of the file: its functions whose names begin with `test_`. In them, `flow{...}` creates an
    /// input of `select`, with default values for omitted fields. Returns the name and the result of each test.
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
        // Absent values are nil, as in `select_caller`.
        let options = SerializeOptions::new().serialize_none_to_null(false);
        let make = self.lua.create_function(move |lua, given: Table| {
            let flow = match lua.to_value_with(&RuleInput::default(), options)? {
                Value::Table(flow) => flow,
                other => return Ok(other),
            };
            for pair in given.pairs::<String, Value>() {
                let (key, value) = pair?;
                let known = flow.contains_key(&*key)? || key == "player";
                if !known {
                    let problem = format!("flow: unknown field {key}");
                    return Err(mlua::Error::runtime(problem));
                }
                flow.set(key, value)?;
            }
            Ok(Value::Table(flow))
        });
        make.and_then(|make| self.lua.globals().set("flow", make))
            .map_err(|error| first_line(&error))
    }

    fn call(&self, input: &RuleInput) -> mlua::Result<Option<Choice>> {
        let arguments = self.arguments(input)?;
        self.budget.begin(SELECT_LIMITS);
        let mut answer = self.call_select.call::<MultiValue>(arguments)?;
        let algorithm = match answer.pop_front() {
            None | Some(Value::Nil) => return Ok(None),
            Some(Value::String(name)) => name.to_string_lossy(),
            Some(other) => {
                let problem = format!(
                    "{}: select returned a {}; expected the name of an algorithm, or nil",
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

    /// Arguments of the function that [`select_caller`] creates, in its order.
    fn arguments(&self, input: &RuleInput) -> mlua::Result<MultiValue> {
        let text = |text: &str| self.lua.create_string(text).map(Value::String);
        let mut values = Vec::with_capacity(NUMBERS.len() + 9);
        values.push(Value::Integer(input.connection.cast_signed()));
        values.push(text(input.class.as_str())?);
        values.push(text(&input.algorithm)?);
        values.push(Value::Integer(input.switches.cast_signed()));
        values.extend(NUMBERS.iter().map(|(_, of)| Value::Number(of(input))));
        if let Some(player) = input.player {
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

/// Creates a function that sets every field of one table and calls `select` with it. It is written in Lua: setting
/// each field from Rust would cost a call across the boundary per field.
fn select_caller(lua: &Lua, select: Function) -> mlua::Result<Function> {
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
    lua.load(text).set_name("=select").call((select, lua.create_table()?))
}

impl SelectionRules for LuaRules {
    fn select(&mut self, input: &RuleInput) -> Result<Option<Choice>, String> {
        self.call(input).map_err(|error| first_line(&error))
    }
}

/// Makes `table.sort` compare by a Lua function: otherwise a sort is one library call, which no limit interrupts,
/// and comparisons of long strings are slow.
const SORT: &str = "
    local sort, less = table.sort, function(a, b) return a < b end
    function table.sort(list, order) return sort(list, order or less) end
";

/// A Lua state with the functions that rules may use.
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
    let triggers =
        HookTriggers::new().on_calls().every_nth_instruction(CHECK_INTERVAL_INSTRUCTIONS);
    lua.set_hook(triggers, move |_, debug| match debug.event() {
        DebugEvent::Count => budget.spend(CHECK_INTERVAL_INSTRUCTIONS),
        _ => budget.spend(0),
    })?;
    Ok(lua)
}

/// Removes all functions but these from a library.
fn keep(library: &Table, names: &[&str]) -> mlua::Result<()> {
    let all: Vec<String> =
        library.pairs::<String, Value>().map(|pair| Ok(pair?.0)).collect::<mlua::Result<_>>()?;
    for name in all.iter().filter(|name| !names.contains(&name.as_str())) {
        library.set(name.as_str(), Value::Nil)?;
    }
    Ok(())
}

/// The error without its traceback, which does not concern the rules.
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
