//! What the programs log, and how.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::terminal::{LogWriter, Manner};

/// What `--log-format` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Log lines from now on: what RUST_LOG says, or else what `manner` does. The loss of one is no error:
/// its report would go to the same stream, and panic.
///
/// # Panics
/// If it is called twice.
pub fn start(format: LogFormat, manner: Manner) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(manner.log_level()));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogWriter)
        .with_target(false)
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log
            .with_ansi(manner.colours(io::stderr().is_terminal()))
            .init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
