//! Both programs on loopback, without any privilege. One topic a module; one program, so that
//! tests that measure can keep all others waiting.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod admin_pages;
mod bulk;
mod bypass;
mod classes;
mod commands;
mod config;
mod congestion_control;
mod dead_destination;
mod destinations;
mod doctor;
mod drain;
mod enrolment;
mod fail_open;
mod fair_shares;
mod half_close;
mod health;
mod http_forward;
mod isolation;
mod logs;
mod malformed;
mod many_flows;
mod mcc;
mod modes;
mod names;
mod otlp;
mod outage;
mod panics;
mod path_change;
mod peers;
mod proxy_credentials;
mod proxy_listeners;
mod qlog;
mod quic_flows;
mod rate_cap;
mod refused;
mod reload;
mod resets;
mod resumption;
mod rtp_repair;
mod rtsp;
mod rtsp_cameras;
mod rtsp_interleaved;
mod second_process;
mod server_addresses;
mod several_servers;
mod slow_origin;
mod slow_reader;
mod start_up;
mod stub_server;
mod tunnel_death;
mod udp;
mod urgent_data;
mod windows;
