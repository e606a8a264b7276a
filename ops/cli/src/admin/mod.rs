//! The admin API of a running program, from its other end.

mod api;
mod arguments;
mod endpoint;
mod error;
#[cfg(test)]
pub(crate) mod test_listener;
#[cfg(test)]
mod tests;
mod token_users;

pub(crate) use api::{AdminApi, path_segment};
pub(crate) use arguments::AdminArgs;
pub(crate) use error::AdminApiError;
