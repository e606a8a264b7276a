//! The options that say where the admin listener is.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use millrace_config::{AdminToken, HostPort};

use super::api::AdminApi;
use super::endpoint::AdminEndpoint;
use crate::program::Program;

/// Where the admin listener of the running program is.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Configuration file of the running program, for admin.address and admin.token_file
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    pub config: PathBuf,
    /// Address of the admin listener, instead of that in a configuration file
    #[arg(long, value_name = "HOST:PORT")]
    pub admin: Option<HostPort>,
    /// File with the token that the admin listener at --admin asks for
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub token_file: Option<PathBuf>,
}

impl AdminArgs {
    /// The API at the address that the options name, or the configuration of `program`.
    ///
    /// # Errors
    /// The configuration or the token can't be read, or there is no admin listener.
    pub(crate) fn api(&self, program: Program) -> anyhow::Result<AdminApi> {
        let endpoint = match &self.admin {
            Some(address) => {
                let token = self.token_file.as_deref().map(AdminToken::read).transpose();
                AdminEndpoint::given(address.clone(), token.context("--token-file")?)
            }
            None => {
                let admin = (program.load_admin)(&self.config)?;
                AdminEndpoint::configured(&admin, &self.config)?
            }
        };
        Ok(AdminApi::new(endpoint))
    }
}
