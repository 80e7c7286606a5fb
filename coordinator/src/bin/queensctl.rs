//! The operators' program.

use std::process::ExitCode;

use coordinator::queensctl::{Options, main as queensctl};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    queensctl(Options::read()).await.into()
}
