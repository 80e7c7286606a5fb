//! Clients that ask and do not read what they are told.

use common::method::Layout;
use coordinator::{sched::Config, store::MemoryStore};
use proto::v1::{RunRequest, RunState, WatchStatusRequest, runs_client::RunsClient};
use tests::face::{Face, HandWorker, plan};
use tonic::transport::Endpoint;

/// Bytes of an answer that a slow reader takes: less than any answer has.
const WINDOW: u32 = 8;

#[tokio::test]
async fn whoever_does_not_read_costs_the_others_nothing() -> anyhow::Result<()> {
    let face = Face::start(Box::new(MemoryStore::default()), Config::default())?;
    let plan = plan(9, Layout::FirstRows, 1);
    let run = face.create(&plan).await?.run;
    let mut slow = Vec::new();
    for _ in 0..16 {
        let endpoint = Endpoint::from_shared(format!("http://{}", face.address))?;
        let channel = endpoint
            .initial_stream_window_size(WINDOW)
            .connect()
            .await?;
        let mut client = RunsClient::new(channel);
        for _ in 0..8 {
            let watch = WatchStatusRequest {
                run: Some(run.0),
                interval_ms: 50,
            };
            slow.push(client.watch_status(watch).await?);
        }
    }
    let mut worker = HandWorker::connect(&face, 7).await?;
    // Each task, and some of them twice: the first counts of a worker are compared.
    assert!(worker.count_all().await? >= plan.tasks());
    let mut late = Vec::new();
    for _ in 0..16 {
        let endpoint = Endpoint::from_shared(format!("http://{}", face.address))?;
        let channel = endpoint
            .initial_stream_window_size(WINDOW)
            .connect()
            .await?;
        late.push(
            RunsClient::new(channel)
                .export(RunRequest { run: run.0 })
                .await?,
        );
    }
    let runs = face.runs().await?.list(proto::v1::ListRequest {}).await?;
    let listed = &runs.into_inner().runs[0];
    assert_eq!(listed.state(), RunState::Complete);
    // Those who read after all get everything.
    let mut first = late.remove(0).into_inner();
    let mut records = 0;
    while first.message().await?.is_some() {
        records += 1;
    }
    assert!(records >= plan.tasks(), "{records}");
    drop((slow, late));
    face.stop().await
}
