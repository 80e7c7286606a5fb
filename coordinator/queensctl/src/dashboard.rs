//! `queensctl dashboard`.

use clap::Args;
use proto::v1::DashboardRequest;
use serde_json::json;

use super::{client::Connection, output::print};
use coordinator::{exit::Exit, text::tell};

/// Options of `dashboard`.
#[derive(Clone, Debug, Args)]
pub(super) struct DashboardOptions {
    /// Prints a JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn dashboard(
    connection: &Connection,
    options: &DashboardOptions,
) -> anyhow::Result<Exit> {
    let mut client = connection.connect().await?;
    let found = connection
        .ask(client.dashboard(DashboardRequest {}))
        .await?;
    if options.json {
        print(&json!({ "url": found.url, "only_there": found.only_there }).to_string())?;
        return Ok(Exit::Success);
    }
    if found.only_there {
        tell("from the coordinator's machine alone (--http 0.0.0.0:7172 opens it to others):");
    }
    print(&found.url)?;
    Ok(Exit::Success)
}
