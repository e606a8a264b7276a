//! Interception with the shipped nftables files, and destinations that only a network of its own has.
//! Needs root: it makes network namespaces (and removes them).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod congestion_control;
mod dead_server;
mod doctor;
mod full_disk;
mod http3;
mod interception;
mod local_ports;
mod names;
mod path_change;
mod path_mtu;
mod privileges;
mod rtsp;
mod unreachable;
mod vanished_peers;
mod world;
