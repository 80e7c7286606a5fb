//! The commands about workers.

use clap::Args;
use proto::v1::WorkersRequest;

use super::{client::Connection, output::print, render};
use crate::{exit::Exit, text::stdout_width};

/// Options of `workers`.
#[derive(Clone, Debug, Args)]
pub(super) struct WorkersOptions {
    /// Prints one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(super) async fn workers(
    connection: &Connection,
    options: &WorkersOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let workers = connection
        .ask(client.workers(WorkersRequest {}))
        .await?
        .workers;
    match options.json {
        true => {
            for worker in &workers {
                print(&render::worker_json(worker).to_string())?;
            }
        }
        false if workers.is_empty() => print("no worker has called since the coordinator started")?,
        false => print(&render::workers_table(&workers, stdout_width()))?,
    }
    Ok(Exit::Success)
}
