//! The rules that select an algorithm, and their implementation in Lua.

mod batch;
mod lua;
mod select;

pub use batch::MAX_BATCH;
pub use lua::{LuaRules, RulesError};
pub use select::{Choice, SelectionRules};
