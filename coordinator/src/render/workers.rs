//! Workers.

use std::collections::BTreeMap;

use proto::v1;
use serde_json::{Value, json};

use super::{hexadecimal, kernel};
use crate::text::{Column, age, plural, table};

/// A worker as JSON.
pub fn worker_json(worker: &v1::Worker) -> Value {
    json!({
        "id": hexadecimal(&worker.id),
        "name": worker.name,
        "version": worker.version,
        "kernel": kernel(worker.kernel()),
        "threads": worker.threads,
        "state": worker.state,
        "leases": worker.leases,
        "tasks_done": worker.tasks_done,
        "last_seen_ms_ago": worker.last_seen_ms_ago,
        "cost_per_second": worker.cost_per_second,
        "failed_threads": worker.failed_threads,
        "crews": worker.crews,
        "paused": worker.paused,
    })
}

/// A table that fits `width`, and what its figures mean.
pub fn workers_table(workers: &[v1::Worker], width: Option<usize>) -> String {
    let columns = [
        Column::words("ID"),
        Column::name("NAME"),
        Column::words("STATE"),
        Column::words("KERNEL"),
        Column::numbers("LEASES"),
        Column::numbers("DONE"),
        Column::numbers("SPEED"),
        Column::words("SEEN"),
    ];
    let row = |worker: &v1::Worker| {
        // Milliseconds of a worker's silence, only ever shown.
        #[expect(clippy::cast_precision_loss)]
        let seen = worker.last_seen_ms_ago as f64 / 1000.0;
        let id = hexadecimal(&worker.id);
        vec![
            id.get(..8).unwrap_or(&id).to_owned(),
            worker.name.clone(),
            worker.state.clone(),
            format!("{} x{}", kernel(worker.kernel()), worker.threads),
            worker.leases.to_string(),
            worker.tasks_done.to_string(),
            cores(worker.cost_per_second),
            format!("{} ago", age(seen)),
        ]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    let table = table(&columns, &rows, width);
    let legend = "KERNEL x threads; SPEED in cores of the reference machine";
    let (failed, versions) = (failed_threads(workers), other_versions(workers));
    let paused = paused(workers);
    format!("{table}\n{legend}{failed}{paused}{versions}")
}

/// A line for every worker that pauses, with its reason.
fn paused(workers: &[v1::Worker]) -> String {
    let paused = workers.iter().filter(|worker| worker.state == "paused");
    paused
        .map(|worker| format!("\n{} pauses: {}", worker.name, worker.paused))
        .collect()
}

/// A line for every worker with threads that cannot be trusted.
fn failed_threads(workers: &[v1::Worker]) -> String {
    let failed = workers.iter().filter(|worker| worker.failed_threads > 0);
    failed
        .map(|worker| {
            format!(
                "\n{}: {} counted known boards wrong and stopped, and what it counted since they were last \
                 right is counted again: check this machine's memory and processor",
                worker.name,
                plural(worker.failed_threads, "thread")
            )
        })
        .collect()
}

/// A speed in cores of the reference machine, of which one does a microsecond's work in a
/// microsecond.
fn cores(cost_per_second: f64) -> String {
    let cores = cost_per_second / 1e6;
    match cores {
        _ if cores <= 0.0 => "-".to_owned(),
        _ if cores < 10.0 => format!("{cores:.2}"),
        _ => format!("{cores:.1}"),
    }
}

/// Who runs another release than this program, in a line; nothing where nobody does.
fn other_versions(workers: &[v1::Worker]) -> String {
    let own = env!("CARGO_PKG_VERSION");
    let mut versions = BTreeMap::new();
    // A worker that has not called since the coordinator started has not said its version.
    for worker in workers.iter().filter(|worker| !worker.version.is_empty()) {
        *versions.entry(worker.version.as_str()).or_insert(0u64) += 1;
    }
    if versions.keys().all(|version| *version == own) {
        return String::new();
    }
    let listed: Vec<_> = versions
        .into_iter()
        .map(|(version, number)| format!("{version} ({})", plural(number, "worker")))
        .collect();
    format!("\nversions: {}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;

    fn worker(name: &str) -> v1::Worker {
        v1::Worker {
            id: vec![0xab; 16],
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: v1::Kernel::Avx512.into(),
            threads: 128,
            state: "draining".to_owned(),
            leases: 12_345,
            tasks_done: 1_234_567,
            last_seen_ms_ago: 59_000,
            cost_per_second: 127.25e6,
            failed_threads: 0,
            crews: 4,
            paused: String::new(),
        }
    }

    #[test]
    fn a_table_of_workers_fits_eighty_columns() {
        let names = ["node7", "a-very-long-name.of-a-host.in-some-domain.example"];
        let workers = names.map(worker);
        let table = workers_table(&workers, Some(WIDTH));
        assert!(
            table.lines().all(|line| line.chars().count() <= WIDTH),
            "{table}"
        );
        for part in [
            "abababab",
            "node7",
            "avx512 x128",
            "127.2",
            "59 s ago",
            "cores of the",
        ] {
            assert!(table.contains(part), "'{part}' in\n{table}");
        }
        assert!(workers_table(&workers, None).contains(names[1]));
        assert!(!table.contains("versions"));
    }

    #[test]
    fn who_pauses_says_why() {
        let mut workers = [worker("a"), worker("b")];
        workers[1].state = "paused".to_owned();
        workers[1].paused = "on battery".to_owned();
        let table = workers_table(&workers, None);
        assert!(table.ends_with("\nb pauses: on battery"), "{table}");
    }

    #[test]
    fn other_releases_are_named() {
        let mut workers = [worker("a"), worker("b")];
        workers[1].version = "9.8.7".to_owned();
        let table = workers_table(&workers, None);
        assert!(table.contains("9.8.7 (1 worker)"), "{table}");
    }
}
