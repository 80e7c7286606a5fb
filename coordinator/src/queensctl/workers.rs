//! The commands about workers.

use clap::{Args, Subcommand};
use proto::v1::{TrustRequest, WorkersRequest};

use super::{client::Connection, output::print};
use crate::{exit::Exit, render, text::stdout_width};

/// Options of `workers`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct WorkersOptions {
    /// What to do with one, instead of showing them all.
    #[command(subcommand)]
    command: Option<WorkersCommand>,

    /// Prints one JSON object a line
    #[arg(long)]
    json: bool,
}

/// What is done with a worker.
#[derive(Clone, Debug, Subcommand)]
enum WorkersCommand {
    /// Vouches for a worker whose counts were wrong, after a repair: it gets work again, and its
    /// counts are believed
    Trust(TrustOptions),
}

/// Options of `workers trust`.
#[derive(Clone, Debug, Args)]
struct TrustOptions {
    /// The worker's name, or the start of its identity
    #[arg(value_name = "NAME")]
    worker: String,
}

async fn trust(connection: &Connection, options: &TrustOptions) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let request = TrustRequest {
        worker: options.worker.clone(),
    };
    let trusted = connection.ask(client.trust(request)).await?;
    print(&format!("{} is trusted again", trusted.worker))?;
    Ok(Exit::Success)
}

pub(super) async fn workers(
    connection: &Connection,
    options: &WorkersOptions,
) -> anyhow::Result<Exit> {
    if let Some(WorkersCommand::Trust(options)) = &options.command {
        return trust(connection, options).await;
    }
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
        false if workers.is_empty() => print("no worker is connected")?,
        false => print(&render::workers_table(&workers, stdout_width()))?,
    }
    Ok(Exit::Success)
}
