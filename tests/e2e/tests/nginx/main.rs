//! The shipped nginx configurations (`nginx-conf/`) with Debian's nginx, as a gateway's client edge,
//! a server edge and an origin. Needs root, nginx and its modules: `make setup` installs them.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod access_list;
mod balancer;
mod client_edge;
mod direct_flows;
mod edges;
mod fail_open;
mod http;
mod origin_files;
mod origin_qoe;
mod origin_tokens;
mod server_edge;
mod site;
