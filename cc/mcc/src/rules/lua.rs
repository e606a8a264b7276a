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
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaSerdeExt, StdLib, Table, Value, VmState};
use nix::time::{ClockId, clock_gettime};
use thiserror::Error;

use super::batch::{self, BatchCaller, BatchFunctions, MAX_BATCH, Returned};
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

/// The rules of one file.
#[derive(Debug)]
pub struct LuaRules {
    lua: Lua,
    batch: BatchCaller,
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
        let load = || -> mlua::Result<(Lua, Option<BatchCaller>)> {
            let Sandbox { lua, pcall, unpack } = sandbox(&budget)?;
            lua.load(text).set_name(format!("@{name}")).exec()?;
            let Some(select) = lua.globals().get::<Option<Function>>("select")? else {
                return Ok((lua, None));
            };
            let begin = Rc::clone(&budget);
            let begin = lua.create_function(move |_, ()| {
                begin.begin(SELECT_LIMITS);
                Ok(())
            })?;
            let batch = BatchCaller::new(&lua, BatchFunctions { select, pcall, unpack, begin })?;
            Ok((lua, Some(batch)))
        };
        let (lua, batch) = load().map_err(|error| RulesError::Lua(first_line(&error)))?;
        let batch = batch.ok_or_else(|| RulesError::NoSelect(name.to_owned()))?;
        Ok(Self { lua, batch, budget, name: name.to_owned() })
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
        // Absent values are nil, as in `BatchCaller`.
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

    /// The choice from what a call of `select` returned.
    fn choice(&self, returned: Returned) -> Result<Option<Choice>, String> {
        let (algorithm, reason) = match returned {
            Returned::Values(algorithm, reason) => (algorithm, reason),
            Returned::Error(Value::Error(error)) => return Err(first_line(&error)),
            Returned::Error(Value::String(text)) => {
                return Err(first_line(&mlua::Error::runtime(text.to_string_lossy())));
            }
            Returned::Error(other) => {
                return Err(format!("{}: select failed with a {}", self.name, other.type_name()));
            }
        };
        let algorithm = match algorithm {
            Value::Nil => return Ok(None),
            Value::String(name) => name.to_string_lossy(),
            other => {
                return Err(format!(
                    "{}: select returned a {}; expected the name of an algorithm, or nil",
                    self.name,
                    other.type_name()
                ));
            }
        };
        let reason = match reason {
            Value::String(reason) => {
                Some(reason.to_string_lossy().chars().take(MAX_REASON_CHARS).collect())
            }
            _ => None,
        };
        Ok(Some(Choice { algorithm, reason }))
    }
}

impl SelectionRules for LuaRules {
    fn select(&mut self, input: &RuleInput) -> Result<Option<Choice>, String> {
        let returned = self.batch.call(&self.lua, std::slice::from_ref(input));
        let returned = returned.map_err(|error| first_line(&error))?;
        returned.into_iter().next().map_or(Ok(None), |returned| self.choice(returned))
    }

    fn select_batch(&mut self, inputs: &[RuleInput]) -> Vec<Result<Option<Choice>, String>> {
        let mut choices = Vec::with_capacity(inputs.len());
        for part in inputs.chunks(MAX_BATCH) {
            match self.batch.call(&self.lua, part) {
                Ok(all) => choices.extend(all.into_iter().map(|returned| self.choice(returned))),
                Err(error) => choices.extend(part.iter().map(|_| Err(first_line(&error)))),
            }
        }
        choices
    }
}

/// Makes `table.sort` compare by a Lua function: otherwise a sort is one library call, which no limit interrupts,
/// and comparisons of long strings are slow.
const SORT: &str = "
    local sort, less = table.sort, function(a, b) return a < b end
    function table.sort(list, order) return sort(list, order or less) end
";

/// A Lua state with the functions that rules may use.
struct Sandbox {
    lua: Lua,
    /// Functions that rules cannot replace, for [`BatchCaller`].
    pcall: Function,
    unpack: Function,
}

fn sandbox(budget: &Rc<Budget>) -> mlua::Result<Sandbox> {
    let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(true))?;
    let globals = lua.globals();
    let pcall = globals.get("pcall")?;
    let unpack = globals.get::<Table>("table")?.get("unpack")?;
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
    lua.set_hook(triggers, move |lua, debug| {
        let spent = match debug.event() {
            DebugEvent::Count => budget.spend(CHECK_INTERVAL_INSTRUCTIONS),
            _ => budget.spend(0),
        };
        // Between two connections of a batch there is no call of `select` to stop.
        spent.or_else(
            |error| if batch::is_running(lua) { Ok(VmState::Continue) } else { Err(error) },
        )
    })?;
    Ok(Sandbox { lua, pcall, unpack })
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
