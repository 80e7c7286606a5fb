//! The commands about workers.

use clap::{Args, Subcommand};
use proto::v1::{DrainRequest, TrustRequest, WorkersRequest};

use super::{client::Connection, examples, output::print};
use coordinator::{exit::Exit, render, text::stdout_width};

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
    #[command(after_help = examples::WORKERS_TRUST)]
    Trust(Named),
    /// Stops a worker in good order: it takes nothing more, finishes what takes a few seconds, gives the
    /// rest back, hands in what it has counted, and ends. Started again, it counts again
    #[command(after_help = examples::WORKERS_DRAIN)]
    Drain(Named),
}

/// Which worker is meant.
#[derive(Clone, Debug, Args)]
struct Named {
    /// The worker's name, or the start of its identity
    #[arg(value_name = "NAME")]
    worker: String,
}

async fn trust(connection: &Connection, options: &Named) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let request = TrustRequest {
        worker: options.worker.clone(),
    };
    let trusted = connection.ask(client.trust(request)).await?;
    print(&format!("{} is trusted again", trusted.worker))?;
    Ok(Exit::Success)
}

async fn drain(connection: &Connection, options: &Named) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let request = DrainRequest {
        worker: options.worker.clone(),
    };
    let told = connection.ask(client.drain(request)).await?;
    print(&format!(
        "{} gets no more work; it hands in what it has and ends, and counts again once it is started again",
        told.worker
    ))?;
    Ok(Exit::Success)
}

pub(super) async fn workers(
    connection: &Connection,
    options: &WorkersOptions,
) -> anyhow::Result<Exit> {
    match &options.command {
        Some(WorkersCommand::Trust(options)) => return trust(connection, options).await,
        Some(WorkersCommand::Drain(options)) => return drain(connection, options).await,
        None => {}
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
