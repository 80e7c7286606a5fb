//! Asking the coordinator which run a name means.

use common::run::RunId;
use proto::v1::ListRequest;

use super::client::{Client, Connection};
use coordinator::name::RunName;

/// The run's number, as the coordinator knows it.
pub(super) async fn find(
    name: &RunName,
    connection: &Connection,
    client: &mut Client,
) -> anyhow::Result<u64> {
    if let RunName::Whole(run) = name {
        return Ok(run.0);
    }
    let runs = connection.ask(client.list(ListRequest {})).await?.runs;
    let created = |run: &proto::v1::Run| (run.created_unix_ms, RunId(run.run));
    let created: Vec<_> = runs.iter().map(created).collect();
    Ok(name.among(&created)?.0)
}
