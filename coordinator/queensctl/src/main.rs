//! The operators' program: asks a coordinator, or reads what it keeps, and prints what it is told.

// `println!` and `eprintln!` panic where a pipe is closed or a disk is full.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bar;
mod certify;
mod client;
mod copy;
mod dashboard;
mod examples;
mod fleet;
mod follow;
mod museum;
mod name;
mod options;
mod output;
mod place;
mod plan;
mod runs;
mod status;
mod token;
mod verify;
mod watch;
mod workers;

use std::process::ExitCode;

use coordinator::{
    exit::Exit,
    text::{one_line, tell},
};
use worker::terminal::Manner;

use self::{
    client::{BadUsage, Connection},
    options::{Command, Options},
    runs::Control,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Options::read()).await.into()
}

/// Does what is asked and says what went wrong, if something did.
async fn run(options: Options) -> Exit {
    let Options {
        connection,
        manner,
        command,
    } = options;
    manner.keep();
    let done = match command {
        // These compute on this thread: Ctrl-C has to end them without being asked for.
        Command::Verify(options) => verify::verify(&options),
        Command::Copy(options) => copy::copy(&options),
        #[cfg(feature = "archive")]
        Command::Restore(options) => copy::restore(&options),
        Command::Certify(options) => certify::certify(&options),
        Command::Audit(options) => certify::audit(&options),
        Command::Museum(command) => museum::main(&command),
        Command::Plan(options) => plan::plan(&options),
        asking => tokio::select! {
            done = ask(&connection, manner, asking) => done,
            Ok(()) = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
        },
    };
    done.unwrap_or_else(|error| {
        tell(&format!("error: {}", one_line(&error)));
        match error.is::<BadUsage>() {
            true => Exit::Usage,
            false => Exit::Error,
        }
    })
}

/// Follows a command that a coordinator answers.
async fn ask(to: &Connection, manner: Manner, command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Status(of) => status::status(to, manner, &of).await,
        Command::Wait(options) => status::wait(to, &options).await,
        Command::Workers(options) => workers::workers(to, &options).await,
        Command::Runs(options) => runs::runs(to, &options).await,
        Command::Dashboard(options) => dashboard::dashboard(to, &options).await,
        Command::Submit(run) => runs::submit(to, &run).await,
        Command::Pause(run) => runs::control(to, &run, Control::Pause).await,
        Command::Resume(run) => runs::control(to, &run, Control::Resume).await,
        Command::Cancel(run) => runs::control(to, &run, Control::Cancel).await,
        Command::Retry(run) => runs::control(to, &run, Control::Retry).await,
        Command::Recheck(options) => runs::recheck(to, &options).await,
        Command::Delete(run) => runs::delete(to, &run).await,
        Command::Export(run) => runs::export(to, &run).await,
        Command::Verify(options) => verify::verify(&options),
        Command::Copy(options) => copy::copy(&options),
        #[cfg(feature = "archive")]
        Command::Restore(options) => copy::restore(&options),
        Command::Certify(options) => certify::certify(&options),
        Command::Audit(options) => certify::audit(&options),
        Command::Plan(options) => plan::plan(&options),
        Command::Token(options) => token::token(to, &options).await,
        Command::Museum(command) => museum::main(&command),
    }
}
