//! One call of Lua for the states of many connections (MCC, Section 4.1.1: the Selector classifies a batch at once).

use std::collections::HashMap;

use mlua::{Function, Lua, MultiValue, Value};

use crate::RuleInput;

/// Most connections of one call: bounds its memory to about 150 KB of the 4 MiB of a Lua state.
pub const MAX_BATCH: usize = 128;
/// Name of the chunk that calls `select`. Chunks of rules have names that begin with `@`.
const CHUNK: &str = "=batch";
/// Most texts that are kept as Lua strings: names of classes and algorithms.
const MAX_TEXTS: usize = 64;

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

/// Fields that are no number, and that come before the numbers.
const FIRST_FIELDS: [&str; 4] = ["connection", "class", "algorithm", "switches"];
/// Fields of a player's report, which come after the numbers; nil without a report.
const PLAYER_FIELDS: [&str; 5] =
    ["buffer_s", "bitrate_kbps", "top_bitrate_kbps", "starved", "age_s"];
/// Values of a connection.
const WIDTH: usize = FIRST_FIELDS.len() + NUMBERS.len() + PLAYER_FIELDS.len();

/// What a call of `select` returned.
pub(super) enum Returned {
    /// The first two values.
    Values(Value, Value),
    /// The error that ended it.
    Error(Value),
}

/// Functions that the batch uses.
pub(super) struct BatchFunctions {
    pub(super) select: Function,
    pub(super) pcall: Function,
    pub(super) unpack: Function,
    /// Begins the limits of an evaluation.
    pub(super) begin: Function,
}

/// Calls `select` for each connection of a batch.
#[derive(Debug)]
pub(super) struct BatchCaller {
    call: Function,
    texts: HashMap<String, mlua::LuaString>,
}

impl BatchCaller {
    /// Creates a function that sets every field of one table for each connection, and calls `select` with it. It is
    /// written in Lua: each call across the boundary costs more than an evaluation.
    pub(super) fn new(lua: &Lua, functions: BatchFunctions) -> mlua::Result<Self> {
        let set = |table: &str, names: &[&str], first: usize| -> String {
            let line =
                |(at, name): (usize, &&str)| format!("{table}.{name} = v[at + {}]\n", first + at);
            names.iter().enumerate().map(line).collect()
        };
        let names = NUMBERS.map(|(name, _)| name);
        let player = 1 + FIRST_FIELDS.len() + NUMBERS.len();
        let text = format!(
            "local select, pcall, unpack, begin, flow = ...
             return function(count, ...)
               local v, out, at = {{...}}, {{}}, 0
               for i = 1, count do
                 {first}
                 {numbers}
                 flow.player = nil
                 if v[at + {WIDTH}] then
                   local player = {{}}
                   {player}
                   flow.player = player
                 end
                 begin()
                 local ok, algorithm, reason = pcall(select, flow)
                 out[3 * i - 2], out[3 * i - 1], out[3 * i] = ok, algorithm, reason
                 at = at + {WIDTH}
               end
               return unpack(out, 1, 3 * count)
             end",
            first = set("flow", &FIRST_FIELDS, 1),
            numbers = set("flow", &names, 1 + FIRST_FIELDS.len()),
            player = set("player", &PLAYER_FIELDS, player),
        );
        let BatchFunctions { select, pcall, unpack, begin } = functions;
        let given = (select, pcall, unpack, begin, lua.create_table()?);
        let call = lua.load(text).set_name(CHUNK).call(given)?;
        Ok(Self { call, texts: HashMap::new() })
    }

    /// Calls `select` for at most [`MAX_BATCH`] connections, and returns as many results.
    ///
    /// # Errors
    /// The call itself failed, which leaves all connections without a result: there was no memory for it.
    pub(super) fn call(&mut self, lua: &Lua, inputs: &[RuleInput]) -> mlua::Result<Vec<Returned>> {
        debug_assert!(inputs.len() <= MAX_BATCH);
        let mut values = Vec::with_capacity(1 + inputs.len() * WIDTH);
        values.push(Value::Integer(inputs.len() as i64));
        for input in inputs {
            self.push(lua, input, &mut values)?;
        }
        let mut returned = self.call.call::<MultiValue>(MultiValue::from_vec(values))?.into_iter();
        let mut next = || returned.next().unwrap_or(Value::Nil);
        let one = |_| match next() {
            Value::Boolean(true) => Returned::Values(next(), next()),
            _ => {
                let error = next();
                next();
                Returned::Error(error)
            }
        };
        Ok(inputs.iter().map(one).collect())
    }

    /// Appends the values of a connection, [`WIDTH`] of them.
    fn push(&mut self, lua: &Lua, input: &RuleInput, values: &mut Vec<Value>) -> mlua::Result<()> {
        values.push(Value::Integer(input.connection.cast_signed()));
        values.push(self.text(lua, input.class.as_str())?);
        values.push(self.text(lua, &input.algorithm)?);
        values.push(Value::Integer(input.switches.cast_signed()));
        values.extend(NUMBERS.iter().map(|(_, of)| Value::Number(of(input))));
        let number = |number: Option<f64>| number.map_or(Value::Nil, Value::Number);
        values.extend(match input.player {
            Some(player) => [
                number(player.buffer_s),
                number(player.bitrate_kbps),
                number(player.top_bitrate_kbps),
                Value::Boolean(player.starved),
                Value::Number(player.age_s),
            ],
            None => [const { Value::Nil }; PLAYER_FIELDS.len()],
        });
        Ok(())
    }

    /// `text` as a Lua string.
    fn text(&mut self, lua: &Lua, text: &str) -> mlua::Result<Value> {
        if let Some(known) = self.texts.get(text) {
            return Ok(Value::String(known.clone()));
        }
        let new = lua.create_string(text)?;
        if self.texts.len() < MAX_TEXTS {
            self.texts.insert(text.to_owned(), new.clone());
        }
        Ok(Value::String(new))
    }
}

/// Whether the batch itself runs, or a function that it calls other than `select`.
pub(super) fn is_running(lua: &Lua) -> bool {
    let is_batch = |level| {
        let source =
            |debug: &mlua::debug::Debug<'_>| debug.source().source.as_deref() == Some(CHUNK);
        lua.inspect_stack(level, source).unwrap_or(false)
    };
    is_batch(0) || is_batch(1)
}
