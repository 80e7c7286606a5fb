//! The counter for browsers, `worker/browser`, under node.

use std::{path::Path, process::Command};

use common::{
    board::Board,
    count::{Counter, CounterConfig, NoProgress, Orientation},
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
};
use serde_json::{Value, json};

/// Bytes of the module: a page that counts loads fast, and compiles in a moment.
const MAX_BYTES: u32 = 600_000;
/// Compressed bytes, which leave half of the first load of a page to the page.
const MAX_COMPRESSED_BYTES: usize = 200_000;

/// Boards, layouts and costs of a task, in microseconds.
const PLANS: [(u8, Layout, u64); 7] = [
    (8, Layout::Frames, 1),
    (14, Layout::FirstRows, 50_000),
    (15, Layout::Border, 50_000),
    (16, Layout::Frames, 10_000),
    (17, Layout::Frames, 10_000),
    (20, Layout::Frames, 100_000),
    (23, Layout::Frames, 100_000),
];

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../worker/browser"))
}

/// Counts the first, a middle and the last task in lease order natively.
fn counts(plan: &Plan, orientation: Orientation) -> Vec<(TaskId, u64)> {
    let config = CounterConfig { orientation, ..CounterConfig::best(1 << 30) };
    let mut counter = Counter::new(plan, &config).unwrap();
    let positions = [0, plan.tasks() / 2, plan.tasks() - 1];
    let tasks = positions.map(|position| plan.task_at(position));
    let count = |task| counter.count(plan.task_units(task), &NoProgress).unwrap();
    tasks.into_iter().zip(tasks.map(count)).collect()
}

#[test]
fn the_compiled_counter_has_todays_plans_and_counts_sampled_tasks() {
    if Command::new("node").arg("--version").output().is_err() {
        return kit::not_tested("the counter for browsers (apt-get install nodejs)");
    }
    let (mut jobs, mut expected) = (Vec::new(), Vec::new());
    for ((n, layout, task_cost), code) in PLANS.into_iter().zip([2, 0, 1, 2, 2, 2, 2]) {
        let board = Board::new(n).unwrap();
        let plan = Plan::new(PlanSpec { board, layout, task_cost }).unwrap();
        for (rotated, orientation) in Orientation::ALL.into_iter().enumerate() {
            let counted = counts(&plan, orientation);
            let tasks: Vec<_> = counted.iter().map(|(task, _)| task.to_string()).collect();
            jobs.push(json!({
                "n": n, "layout": code, "task_cost": task_cost.to_string(), "rotated": rotated, "tasks": tasks
            }));
            // In steps of one unit, and at once.
            let counts: Vec<_> =
                counted.iter().map(|(_, of)| [of.to_string(), of.to_string()]).collect();
            expected.push(json!({ "hash": plan.hash().to_string(), "counts": counts }));
        }
    }
    // A board, a layout and a cost that no plan has.
    for (n, layout, task_cost) in [(33, 2, "1"), (8, 3, "1"), (8, 2, "0")] {
        jobs.push(
            json!({ "n": n, "layout": layout, "task_cost": task_cost, "rotated": 0, "tasks": [] }),
        );
        expected.push(json!({ "created": 1 }));
    }
    let program = folder().join("count.mjs");
    let end = Command::new("node").arg(program).arg(json!(jobs).to_string()).output().unwrap();
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    let found: Vec<Value> = serde_json::from_slice(&end.stdout).unwrap();
    for (job, (found, expected)) in jobs.iter().zip(found.iter().zip(&expected)) {
        assert_eq!(found, expected, "{job}: compile it again with worker/browser/build");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn the_compiled_counter_is_small() {
    let compressed = std::fs::read(folder().join("browser.wasm.gz")).unwrap();
    let length = compressed.last_chunk().expect("a gzip file ends with the length of its content");
    let bytes = u32::from_le_bytes(*length);
    assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    assert!(compressed.len() <= MAX_COMPRESSED_BYTES, "{} compressed bytes", compressed.len());
}
