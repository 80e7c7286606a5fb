//! A fleet of which half leaves and comes again and again: nothing is lost.

use std::collections::VecDeque;

use proto::v1::Status;
use tests::{
    cluster::{Cluster, by_rows, result},
    process::{PATIENCE, Process},
};

/// A run of a minute of one core with the portable kernel, in tasks of some milliseconds: that fleet never
/// comes to its end.
const RUN: [&str; 8] = by_rows("18", "10000");

/// Workers that count at any time; half of them is exchanged at once.
const FLEET: usize = 4;

/// How often half of the fleet is exchanged, after equal numbers of tasks.
const ROUNDS: u64 = 4;

/// One part in so many of all tasks is counted before each exchange.
const PARTS: u64 = 20;

struct Member {
    name: String,
    process: Process,
}

impl Member {
    fn start(cluster: &Cluster, number: usize) -> Self {
        let name = format!("worker-{number}");
        let process = cluster.worker(&name);
        Self { name, process }
    }

    fn has_counted(&self, status: &Status) -> bool {
        let mut workers = status.workers.iter();
        workers.any(|worker| worker.name == self.name && worker.tasks_done > 0)
    }
}

#[tokio::test]
async fn half_of_a_fleet_leaves_and_comes_again_and_again() {
    let cluster = Cluster::new(&RUN);
    let coordinator = cluster.coordinator();
    let mut fleet: VecDeque<Member> = (0..FLEET)
        .map(|number| Member::start(&cluster, number))
        .collect();
    for round in 1..=ROUNDS {
        let due = |status: &Status| {
            status.tasks_done * PARTS >= status.tasks_total * round
                && fleet.iter().all(|member| member.has_counted(status))
        };
        let status = cluster.status(due).await;
        assert!(
            status.tasks_done < status.tasks_total,
            "half the fleet leaves before the end"
        );
        let leaving: Vec<Member> = fleet.drain(..FLEET / 2).collect();
        for member in &leaving {
            member.process.signal("TERM");
        }
        for number in 0..FLEET / 2 {
            let number = FLEET + usize::try_from(round).unwrap() * FLEET + number;
            fleet.push_back(Member::start(&cluster, number));
        }
        for member in leaving {
            let end = member.process.end();
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
    // To the end in peace, and quickly.
    let _quick = cluster.quick_worker(&cluster.url(), "quick");
    let end = coordinator.end_within(10 * PATIENCE);
    drop(fleet);
    assert_eq!(result(&end)["solutions"], "666090624");
    let verified = cluster.verify();
    assert_eq!(verified.code, Some(0), "{verified:#?}");
}
