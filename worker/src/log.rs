//! What the programs log, and how.

use std::{
    env,
    io::{self, IsTerminal as _},
};

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::{
    filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

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
    let asked = env::var("RUST_LOG").ok();
    let targets = asked.and_then(|asked| asked.parse().ok());
    let targets = targets.unwrap_or_else(|| Targets::new().with_default(manner.log_level()));
    // Of all levels: `targets` is asked before it.
    let log = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(LogWriter)
        .with_target(false)
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log
            .with_ansi(manner.colours(io::stderr().is_terminal()))
            .finish()
            .with(targets)
            .init(),
        LogFormat::Json => log.json().flatten_event(true).finish().with(targets).init(),
    }
}
