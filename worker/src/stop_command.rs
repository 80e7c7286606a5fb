//! `worker stop`.

use std::process::ExitCode;

use worker::stop::{Which, stop};

use crate::{
    cli::Stop,
    say::{fail, print},
};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(arguments: &Stop) -> ExitCode {
    let which = match &arguments.spool {
        Some(directory) => Which::Directory(directory.clone()),
        None => Which::Usual(arguments.name.clone()),
    };
    let stopped = match stop(&which).await {
        Ok(stopped) => stopped,
        Err(error) => return fail(1, error),
    };
    let printed = stopped.iter().try_for_each(|spool| {
        print(&format!(
            "stopped: the worker with spool {}",
            spool.display()
        ))
    });
    printed.map_or_else(|error| fail(1, error), |()| ExitCode::SUCCESS)
}
