//! The coordinator program.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use clap::Parser as _;
use coordinator::app::{LogWriter, Options, main as coordinator};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogWriter)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    coordinator(options).await.into()
}
