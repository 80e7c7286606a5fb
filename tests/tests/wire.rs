//! Over real TCP: what the coordinator takes, what it refuses, and that refusing changes nothing.

use common::{known::known_counts, method::Layout};
use coordinator::{
    driver::Known,
    sched::Config,
    store::{MemoryStore, RunState},
};
use tests::face::{Face, HandWorker, plan};

#[tokio::test]
async fn a_worker_written_by_hand_completes_a_run() -> anyhow::Result<()> {
    let face = Face::start(Box::new(MemoryStore::default()), Config::default())?;
    let plan = plan(10, Layout::FirstRows, 100);
    let manifest = face.create(&plan).await?;
    let mut worker = HandWorker::connect(&face, 7).await?;
    assert_eq!(worker.count_all().await?, plan.tasks());

    let mut outcomes = face.driver.outcomes();
    let outcome = outcomes
        .wait_for(|outcomes| outcomes.contains_key(&manifest.run))
        .await?[&manifest.run]
        .clone();
    assert_eq!(Some(outcome.counts?), known_counts(plan.spec().board));
    assert_eq!(outcome.known, Known::Matches);
    let report = face.driver.status(Some(manifest.run)).await?;
    assert_eq!(report.unwrap().status.state, RunState::Complete);
    face.stop().await
}
