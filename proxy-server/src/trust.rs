//! Secrets and keys of a server.

use std::sync::Arc;

use millrace_config::{ConfigError, ServerConfig};
use millrace_tunnel::reset_secret::{self, ResetSecret};
use millrace_tunnel::session_tickets::TicketKeys;
use millrace_tunnel::stateless_reset::StatelessReset;

/// What the server keeps from its start on, over all reloads.
pub(crate) struct Trust {
    pub(crate) ticket_keys: Arc<TicketKeys>,
    pub(crate) reset: StatelessReset,
}

impl Trust {
    /// Reads or makes the secret in the state directory.
    pub(crate) fn new(config: &ServerConfig) -> anyhow::Result<Self> {
        let secret = match &config.tunnel.state_dir {
            Some(directory) => reset_secret::read_or_create(directory)
                .map_err(|error| config.source.error("tunnel.state_dir", error.to_string()))?,
            None => {
                tracing::warn!(
                    "tunnel.state_dir is not set: after a restart clients wait for tunnel.idle_timeout_s until \
                     they connect again, because this server can't reset their old connections"
                );
                reset_secret::random()
            }
        };
        Ok(Self::with_secret(config, &secret)?)
    }

    pub(crate) fn with_secret(
        config: &ServerConfig,
        secret: &ResetSecret,
    ) -> Result<Self, ConfigError> {
        let instance: Vec<_> = config.tunnel.listen.iter().map(ToString::to_string).collect();
        let reset = StatelessReset::new(secret, &instance.join(" "))
            .map_err(|error| config.source.error("tunnel.state_dir", error.to_string()))?;
        Ok(Self { ticket_keys: TicketKeys::new(config.tunnel.session_tickets), reset })
    }
}
