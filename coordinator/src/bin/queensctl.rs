//! The operators' program.

use std::process::ExitCode;

use clap::Parser as _;
use coordinator::queensctl::{Options, main as queensctl};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    queensctl(Options::parse()).await.into()
}
