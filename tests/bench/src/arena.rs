//! Two hosts joined by one cable, nothing between them: what is measured is the machine.
//!
//! ```text
//!  sink, millrace-client ──── veth, MTU 1500, offloads on ──── millrace-server, origin
//!        198.18.0.1                                                  198.18.0.2
//! ```

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use millrace_lab::netns::Namespace;
use millrace_lab::run::Run;
use millrace_lab::veth::{self, VethEnd};

/// Address of the host with the sink.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Address of the host with the origin.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The interface's name on both hosts.
pub const INTERFACE: &str = "eth0";

/// All TCP of the bench uses it, so that no variant profits from the machine's default.
const TCP_CC: &str = "cubic";

/// The two hosts; gone when dropped.
#[derive(Debug)]
pub struct Arena {
    /// The host with the sink.
    pub client: Namespace,
    /// The host with the origin.
    pub server: Namespace,
    /// Scratch directory and name; last, because it outlives what carries its name.
    pub run: Run,
}

impl Arena {
    /// Makes and joins the hosts.
    ///
    /// # Errors
    /// Without root, or when `ip` fails.
    pub fn build() -> Result<Self> {
        let run = Run::start()?;
        let client = Namespace::create(&run, "client")?;
        let server = Namespace::create(&run, "server")?;
        let (client_address, server_address) = (format!("{CLIENT}/24"), format!("{SERVER}/24"));
        let end =
            |namespace, address| VethEnd { namespace, name: INTERFACE, address: Some(address) };
        veth::join(end(&client, &client_address), end(&server, &server_address))?;
        for (host, own) in [(&client, CLIENT), (&server, SERVER)] {
            // A namespace may not change its default algorithm; its routes may.
            let own_route = "proto kernel scope host table local dev lo";
            host.ip(&format!("route replace local {own} {own_route} src {own} congctl {TCP_CC}"))
                .context("TCP congestion control on loopback")?;
            let link_route = "proto kernel scope link";
            host.ip(&format!(
                "route replace 198.18.0.0/24 {link_route} dev {INTERFACE} src {own} \
                 congctl {TCP_CC}"
            ))
            .context("TCP congestion control on the cable")?;
            host.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        }
        Ok(Self { client, server, run })
    }
}
