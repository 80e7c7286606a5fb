//! Command-line options of programs that connect to a coordinator.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{BadAddress, CoordinatorEndpoint, JoinString};

/// Options that select a coordinator and authenticate the caller.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionOptions {
    /// URL of the coordinator: https://HOST:PORT with --tls-ca, or http://HOST:PORT if it runs with
    /// --insecure.
    #[arg(long, value_name = "URL", conflicts_with = "join")]
    pub coordinator: Option<String>,
    /// Data directory of a coordinator on this machine, with join strings for programs of the same user
    /// [default: queens-data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Join string of the coordinator, or @FILE containing it. Prefer QUEENS_JOIN: command
    /// lines are visible to all users of this machine.
    #[arg(long, value_name = "STRING|@FILE")]
    pub join: Option<OsString>,
    /// CA certificates of a coordinator with --client-ca: mutual TLS instead of a join string.
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key", "coordinator"], conflicts_with = "insecure")]
    pub tls_ca: Option<PathBuf>,
    /// Client certificate, with the role in a subject alternative name.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the client certificate.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Allow an unencrypted connection to another machine.
    #[arg(long)]
    pub insecure: bool,
}

impl ConnectionOptions {
    /// Returns the coordinator's endpoint for a caller with this role.
    /// A given data directory must contain the role's join string, even if another option takes precedence.
    pub fn endpoint(&self, role: &str) -> Result<CoordinatorEndpoint, BadAddress> {
        let local = |dir: Option<&Path>| CoordinatorEndpoint::local(dir, role);
        let here = self.data_dir.as_deref().map(|dir| local(Some(dir))).transpose()?;
        if let Some(join) = &self.join {
            let join = JoinString::of_option(join).map_err(BadAddress::Join)?;
            return Ok(CoordinatorEndpoint::Token(join));
        }
        let Some(url) = &self.coordinator else {
            return here.map_or_else(|| local(None), Ok);
        };
        match (&self.tls_ca, &self.tls_cert, &self.tls_key) {
            (Some(ca), Some(certificate), Some(key)) => {
                CoordinatorEndpoint::mutual_tls(url, ca, certificate, key)
            }
            _ => CoordinatorEndpoint::plain(url, self.insecure),
        }
    }
}
