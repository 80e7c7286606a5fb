//! Measures a store: durable records per second, and the time to open a large run.
//!
//! `cargo run --release -p store --example store_bench -- DIR [TASKS]` fills a run of about TASKS tasks
//! (default 1,000,000) in a new data directory, which must be on a disk and not in memory. With feature
//! `postgres`, `postgres://…` in place of DIR names an empty database.

use std::{error::Error, fs, path::Path, time::Instant};

use common::{
    board::Board,
    count::Orientation,
    kernel::KernelName,
    method::Layout,
    plan::{Plan, PlanSpec, TaskId},
    run::{Epoch, RunId, WorkerId},
};
use store::{Change, DiskStore, EntryKind, Principal, Record, RunManifest, Store};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().ok_or("usage: store_bench DIR|URL [TASKS]")?;
    let tasks = arguments.next().map_or(Ok(1_000_000), |tasks| tasks.parse())?;
    let plan = plan_of(tasks)?;
    let mut store = open(&place)?;
    store.create(&RunManifest::new(RunId(1), &plan, 0, 1_700_000_000_000))?;
    // One task stays open: the counts are invented, so a complete run would fail its checks.
    let order: Vec<_> = plan.lease_order().skip(1).collect();
    let mut rest = order.as_slice();
    println!("| records in one apply | applies | durable records/s | ms/apply |");
    println!("|---:|---:|---:|---:|");
    // The driver commits groups of up to 128.
    for (group, applies) in [(1_usize, 500), (16, 500), (128, usize::MAX)] {
        let (tasks, after) = rest.split_at(rest.len().min(group.saturating_mul(applies)));
        rest = after;
        let start = Instant::now();
        for tasks in tasks.chunks(group) {
            let group: Vec<_> = tasks.iter().map(|task| accepted(&plan, *task)).collect();
            store.apply(&group)?;
        }
        let (seconds, applies) = (start.elapsed().as_secs_f64(), tasks.len().div_ceil(group));
        let (rate, ms) = (tasks.len() as f64 / seconds, 1e3 * seconds / applies as f64);
        println!("| {group} | {applies} | {rate:.0} | {ms:.2} |");
    }
    drop(store);
    for prepared in ["as it is", "without its rows"] {
        let rows = Path::new(&place).join("db");
        if prepared != "as it is" && rows.exists() {
            fs::remove_dir_all(rows)?;
        }
        let start = Instant::now();
        let runs = open(&place)?.runs()?.len();
        println!("{runs} run opened {prepared} in {:.2} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Opens a database or a data directory.
fn open(place: &str) -> Outcome<Box<dyn Store>> {
    #[cfg(feature = "postgres")]
    if store::StoreUrl::is_url(place) {
        return Ok(Box::new(store::PgStore::open(place, "store_bench", &mut |_| {})?));
    }
    Ok(Box::new(DiskStore::open(Path::new(place))?))
}

/// Returns a plan with at least `tasks` tasks, but not many more.
fn plan_of(tasks: u64) -> Outcome<Plan> {
    let spec = PlanSpec::new(Board::new(20)?, Layout::FirstRows);
    let (mut enough, mut too_few) = (1, u64::MAX / 2);
    while too_few - enough > 1 {
        let middle = enough.midpoint(too_few);
        match Plan::new(PlanSpec { task_cost: middle, ..spec }) {
            Ok(plan) if plan.tasks() < tasks => too_few = middle,
            _ => enough = middle,
        }
    }
    Ok(Plan::new(PlanSpec { task_cost: enough, ..spec })?)
}

fn accepted(plan: &Plan, task: TaskId) -> Change {
    EntryKind::Accepted.change(Record {
        run: RunId(1),
        task,
        epoch: Epoch(1),
        count: plan.task_limit(task) / 3,
        worker: WorkerId(7),
        principal: Principal::new(7, Some("lab-7")),
        version: "0.1.0".to_owned(),
        kernel: KernelName::Avx512,
        orientation: Orientation::Upright,
        duration_us: 61_000_000,
        accepted_unix_ms: 1_700_000_100_000,
        elapsed_ms: 100_000,
    })
}
