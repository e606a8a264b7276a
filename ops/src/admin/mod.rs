//! The admin listener: a page for people, `/metrics` (Prometheus), `/flows` and `/status` (JSON), `/healthz`,
//! `/livez`, `/qlog` and `/congestion_control`, over HTTP/1.1.
//!
//! It has a thread of its own, so that a slow scrape never delays the data path. Everything a
//! client can hold on to is bounded: connections, the size of a request's head, and the time for
//! it (`connections`). Off loopback it takes a token, and everywhere a `Host` field that names this
//! machine (`access`). Pages of other origins read nothing, except `/flows` by those that
//! `admin.cors_allow_origins` lists.

mod access;
mod congestion_control;
mod connections;
mod content;
mod dashboard;
mod flows_query;
mod http;
mod program;
mod qlog;
#[cfg(test)]
mod resource_tests;
mod resources;
mod responses;
mod server;
mod status;
#[cfg(test)]
mod tests;

pub use access::Access;
pub use content::{Checks, FlowSource, Health, HealthSource};
pub use program::ProgramInfo;
pub use resources::{ADMIN_RESOURCES, AdminResource};
pub use server::{AdminServer, BoundListener, bind};
