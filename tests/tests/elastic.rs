//! A fleet of which half leaves and comes again and again: nothing is lost.

use std::collections::VecDeque;

use proto::v1::Status;
use tests::{
    cluster::{Cluster, by_rows, result},
    process::{PATIENCE, Process},
};

/// A run of some twenty seconds of one core with the portable kernel, in tasks of some milliseconds.
const RUN: [&str; 8] = by_rows("18", "10000");

/// Workers that count at any time; half of them is exchanged at once.
const FLEET: usize = 4;

/// How often half of the fleet is exchanged, after equal numbers of tasks.
const ROUNDS: u64 = 4;

fn newcomer(cluster: &Cluster, number: usize) -> Process {
    cluster.worker(&format!("worker-{number}"))
}

#[tokio::test]
async fn half_of_a_fleet_leaves_and_comes_again_and_again() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let mut fleet: VecDeque<Process> = (0..FLEET)
        .map(|number| newcomer(&cluster, number))
        .collect();
    for round in 1..=ROUNDS {
        let due = |status: &Status| status.tasks_done * (ROUNDS + 1) >= status.tasks_total * round;
        let status = cluster.status(due).await;
        assert!(
            status.tasks_done < status.tasks_total,
            "half the fleet leaves before the end"
        );
        let leaving: Vec<Process> = fleet.drain(..FLEET / 2).collect();
        for worker in &leaving {
            worker.signal("TERM");
        }
        for number in 0..FLEET / 2 {
            let number = FLEET + usize::try_from(round).unwrap() * FLEET + number;
            fleet.push_back(newcomer(&cluster, number));
        }
        for worker in leaving {
            let end = worker.end();
            assert_eq!(end.code, Some(0), "{end:#?}");
        }
        let after = cluster.status(|_| true).await;
        assert_eq!(
            (
                after.tasks_parked,
                after.rechecks.unwrap_or_default().conflicts
            ),
            (0, 0)
        );
    }
    let end = coordinator.end_within(10 * PATIENCE);
    drop(fleet);
    assert_eq!(result(&end)["solutions"], "666090624");
    let verified = cluster.verify();
    assert_eq!(verified.code, Some(0), "{verified:#?}");
}
