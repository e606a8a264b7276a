//! Peers of the server that are not millrace-client, and those that mean it harm.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod amplification;
mod connect_udp;
mod early_data;
mod flood;
mod handshake_budget;
mod key_exchange;
mod known_clients;
mod peer;
mod peer_limits;
mod requests;
mod resumption;
mod retry;
mod stateless_reset;
mod versions;
