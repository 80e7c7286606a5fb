//! Asking the coordinator which run a name means.

use common::run::RunId;
use proto::v1::ListRequest;

use super::client::{Client, Connection};
use crate::name::RunName;

impl RunName {
    /// The run's number, as the coordinator knows it.
    pub(super) async fn find(
        &self,
        connection: &Connection,
        client: &mut Client,
    ) -> anyhow::Result<u64> {
        if let Self::Whole(run) = self {
            return Ok(run.0);
        }
        let runs = connection.ask(client.list(ListRequest {})).await?.runs;
        let created = |run: &proto::v1::Run| (run.created_unix_ms, RunId(run.run));
        let created: Vec<_> = runs.iter().map(created).collect();
        Ok(self.among(&created)?.0)
    }
}
