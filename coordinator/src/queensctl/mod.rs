//! The program `queensctl`: asks, and prints what it is told.

mod client;
mod ladder;
mod options;
mod output;
mod render;
mod runs;
mod status;
mod verify;
mod workers;

pub use self::options::Options;
use self::{options::Command, runs::Control};
use crate::{exit::Exit, text::one_line};

/// Runs the program and says what went wrong, if something did.
pub async fn main(options: Options) -> Exit {
    let to = &options.connection;
    let done = match options.command {
        Command::Status(status) => self::status::status(to, &status).await,
        Command::Workers(options) => workers::workers(to, &options).await,
        Command::Runs(options) => runs::runs(to, &options).await,
        Command::Submit(run) => runs::submit(to, &run).await,
        Command::Pause(run) => runs::control(to, &run, Control::Pause).await,
        Command::Resume(run) => runs::control(to, &run, Control::Resume).await,
        Command::Cancel(run) => runs::control(to, &run, Control::Cancel).await,
        Command::Retry(run) => runs::control(to, &run, Control::Retry).await,
        Command::Delete(run) => runs::delete(to, &run).await,
        Command::Export(run) => runs::export(to, &run).await,
        Command::Verify(options) => verify::verify(&options),
        Command::Ladder(options) => ladder::climb(&options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {}", one_line(&error));
        Exit::Error
    })
}
