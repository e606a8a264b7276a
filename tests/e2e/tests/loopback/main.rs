//! Both programs on loopback, without any privilege. One topic a module; one program, so that
//! tests that measure can keep all others waiting.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod admin_pages;
mod bulk;
mod config;
mod congestion_control;
mod dead_destination;
mod destinations;
mod drain;
mod half_close;
mod malformed;
mod many_flows;
mod modes;
mod peers;
mod refused;
mod resets;
mod resumption;
mod slow_reader;
mod start_up;
mod tunnel_death;
mod windows;
