//! The rules that select an algorithm, and their implementation in Lua.

mod lua;
mod select;

pub use lua::{LuaRules, RulesError};
pub use select::{Choice, SelectionRules};
