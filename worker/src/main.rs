//! The worker program.

mod commands;

use std::process::ExitCode;

use commands::options::{Cli, Command};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Cli { command, serve, terminal } = Cli::read();
    terminal.apply();
    match command {
        Some(Command::Count(arguments)) => commands::count::run(&arguments).await,
        Some(Command::Estimate(arguments)) => commands::estimate::run(&arguments).await,
        Some(Command::Kernels) => commands::list_kernels(),
        Some(Command::Stop(arguments)) => commands::stop_workers(arguments).await,
        None => commands::serve::run(&serve, terminal).await,
    }
}
