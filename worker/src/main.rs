//! The worker program.

mod commands;

use std::process::ExitCode;

use commands::options::{Cli, Command};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system has the resources of a runtime");
    let exit = runtime.block_on(run());
    // A name lookup or the creation of a large plan may still block a thread.
    runtime.shutdown_background();
    exit
}

async fn run() -> ExitCode {
    let Cli { command, serve, terminal } = Cli::read();
    terminal.apply();
    match command {
        Some(Command::Count(arguments)) => commands::count::run(&arguments).await,
        Some(Command::Estimate(arguments)) => commands::estimate::run(&arguments).await,
        Some(Command::Devices) => commands::list_devices(),
        Some(Command::Kernels) => commands::list_kernels(),
        Some(Command::Checkout(arguments)) => commands::package::checkout(&arguments).await,
        Some(Command::Run(arguments)) => commands::package::run(&arguments, terminal).await,
        Some(Command::Submit(arguments)) => commands::package::submit(&arguments).await,
        Some(Command::Stop(arguments)) => commands::stop_workers(arguments).await,
        None => commands::serve::run(&serve, terminal).await,
    }
}
