//! Workers as rows and tables.

use std::collections::BTreeMap;

use proto::v1::{self, WorkerState};
use serde::Serialize;

use super::Rating;
use crate::text::{Column, age, date, plural, table, thousands};

/// The columns of [`WorkerRow::cells`].
pub const WORKER_COLUMNS: [Column; 10] = [
    Column::name("Name"),
    Column::words("State"),
    Column::words("Kernel").optional(),
    Column::numbers("Threads"),
    Column::numbers("Crews").optional(),
    Column::numbers("Speed"),
    Column::numbers("All tasks"),
    Column::words("Current task").optional(),
    Column::numbers("Failed threads").optional(),
    Column::numbers("Last seen"),
];

/// The legend of the columns "Speed" and "All tasks".
pub const WORKER_LEGEND: &str =
    "Speed in reference cores; tasks of all runs since the coordinator's start";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerRow {
    /// The whole identity in hexadecimal digits.
    pub id: String,
    /// `None` for a machine that is no longer connected.
    pub state: Option<WorkerState>,
    pub cells: Vec<String>,
}

impl WorkerRow {
    pub fn rating(&self) -> Rating {
        self.state.map_or(Rating::Ok, rating)
    }
}

/// Returns a row for each worker: those that need attention first, then by name.
pub fn worker_rows(workers: &[v1::Worker]) -> Vec<WorkerRow> {
    let mut workers: Vec<_> = workers.iter().collect();
    // Not by speed, which changes with each report: the rows of a live table would jump.
    workers.sort_by_key(|worker| (!needs_attention(worker), &worker.name, &worker.id));
    let mut name_counts = BTreeMap::new();
    for worker in &workers {
        *name_counts.entry(worker.name.as_str()).or_insert(0u32) += 1;
    }
    let row = |worker: &v1::Worker| {
        let id = common::messages::hex::encode(&worker.id);
        let ms = |ms: u64| age(ms as f64 / 1e3);
        let short = id.get(..8).unwrap_or(&id);
        // After a restart, only the identity of a worker that held leases is known until it calls.
        let mut cells = if worker.name.is_empty() {
            let mut cells = vec!["–".to_owned(); WORKER_COLUMNS.len()];
            cells[0] = format!("worker {short}");
            cells[1] = state_text(worker);
            cells
        } else {
            vec![
                match name_counts[worker.name.as_str()] {
                    1 => worker.name.clone(),
                    _ => format!("{} ({short})", worker.name),
                },
                state_text(worker),
                match worker.device.as_str() {
                    "" => worker.kernel().to_string(),
                    device => format!("{} ({device})", worker.kernel()),
                },
                worker.threads.to_string(),
                worker.crews.to_string(),
                cores(worker.cost_per_second),
                thousands(worker.tasks_done.into()),
                match worker.current_task {
                    Some(task) => format!("{task} for {}", ms(worker.current_task_ms)),
                    None => "–".to_owned(),
                },
                worker.failed_threads.to_string(),
                format!("{} ago", ms(worker.last_seen_ms_ago)),
            ]
        };
        if worker.away_until_unix_ms.is_some() {
            // Nothing is known of the machines that count a package.
            cells[2..6].fill("–".to_owned());
        }
        WorkerRow { id, state: Some(worker.state()), cells }
    };
    workers.into_iter().map(row).collect()
}

/// Returns the state of a worker, with the promised return and the tasks of a package.
fn state_text(worker: &v1::Worker) -> String {
    match worker.away_until_unix_ms {
        Some(until) => format!("away until {}, {}", date(until), plural(worker.leases, "task")),
        None => worker.state().to_string(),
    }
}

fn needs_attention(worker: &v1::Worker) -> bool {
    worker.failed_threads > 0 || rating(worker.state()) != Rating::Ok
}

fn rating(state: WorkerState) -> Rating {
    match state {
        WorkerState::Barred => Rating::Failed,
        WorkerState::Silent | WorkerState::Lost | WorkerState::Reconnecting => Rating::Pending,
        WorkerState::Unspecified
        | WorkerState::Working
        | WorkerState::Idle
        | WorkerState::Paused
        | WorkerState::Draining
        | WorkerState::Away
        | WorkerState::Stopped => Rating::Ok,
    }
}

/// Formats workers as a table that fits `width`, with notes below it.
pub fn workers_table(workers: &[v1::Worker], width: Option<usize>) -> String {
    let columns = [&[Column::words("ID")], &WORKER_COLUMNS[..]].concat();
    let row = |row: WorkerRow| {
        let mut id = row.id;
        id.truncate(8);
        [vec![id], row.cells].concat()
    };
    let rows: Vec<_> = worker_rows(workers).into_iter().map(row).collect();
    let mut text = format!("{}\n{WORKER_LEGEND}", table(&columns, &rows, width));
    for worker in workers.iter().filter(|worker| worker.failed_threads > 0) {
        text += &format!(
            "\n{}: {} failed the self-test and stopped; its counts since the last passed self-test are \
             rechecked. Check the machine's memory and CPU.",
            worker.name,
            plural(worker.failed_threads, "thread")
        );
    }
    for worker in workers.iter().filter(|worker| worker.state() == WorkerState::Paused) {
        text += &format!("\n{} is paused: {}", worker.name, worker.paused);
    }
    text + &other_versions(workers)
}

/// Formats a speed in reference cores (each 10^6 of cost per second).
fn cores(cost_per_second: f64) -> String {
    let cores = cost_per_second / 1e6;
    match cores {
        _ if cores <= 0.0 => "–".to_owned(),
        _ if cores < 10.0 => format!("{cores:.2}"),
        _ => format!("{cores:.1}"),
    }
}

/// Returns a line with the workers' versions, unless all equal this program's.
fn other_versions(workers: &[v1::Worker]) -> String {
    let own = env!("CARGO_PKG_VERSION");
    let mut versions = BTreeMap::new();
    // The version of a reconnecting worker is unknown.
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
            state: WorkerState::Silent.into(),
            tasks_done: 1_234_567,
            current_task: Some(1_999_999),
            current_task_ms: 59_000,
            last_seen_ms_ago: 59_000,
            cost_per_second: 127.25e6,
            crews: 4,
            ..v1::Worker::default()
        }
    }

    #[test]
    fn tables_fit_eighty_columns_and_show_everything_without_a_limit() {
        let workers = ["node7", "a-very-long-name.of-a-host.in-some-domain.example"].map(worker);
        let narrow = workers_table(&workers, Some(WIDTH));
        assert!(narrow.lines().all(|line| line.chars().count() <= WIDTH), "{narrow}");
        for part in ["abababab", "node7", "127.2", "1,234,567", "59 s ago", "reference cores"] {
            assert!(narrow.contains(part), "'{part}' in\n{narrow}");
        }
        let wide = workers_table(&workers, None);
        for part in [workers[1].name.as_str(), "avx512", "1999999 for 59 s", "FAILED THREADS"] {
            assert!(wide.contains(part), "'{part}' in\n{wide}");
        }
        assert!(!wide.contains("versions"));
    }

    #[test]
    fn a_worker_that_has_not_called_since_a_restart_has_a_row_with_its_identity() {
        let unknown = v1::Worker {
            id: vec![0xab; 16],
            state: WorkerState::Reconnecting.into(),
            ..v1::Worker::default()
        };
        let cells = &worker_rows(std::slice::from_ref(&unknown))[0].cells;
        assert_eq!(cells[..2], ["worker abababab", "reconnecting"]);
        assert!(cells[2..].iter().all(|cell| cell == "–"), "{cells:?}");
        let json = serde_json::to_value(crate::json::Worker::from(&unknown)).unwrap();
        assert_eq!(json["kernel"], serde_json::Value::Null);
    }

    #[test]
    fn a_package_has_a_promised_return_and_no_threads() {
        let away = v1::Worker {
            state: WorkerState::Away.into(),
            away_until_unix_ms: Some(1_800_000_000_000),
            leases: 4_096,
            ..worker("lab")
        };
        let cells = &worker_rows(std::slice::from_ref(&away))[0].cells;
        let start = ["lab", "away until 2027-01-15, 4,096 tasks", "–", "–", "–", "–", "1,234,567"];
        assert_eq!(cells[..7], start);
    }

    #[test]
    fn a_device_stands_beside_its_kernel() {
        let device = "NVIDIA H100 80GB HBM3".to_owned();
        let gpu = v1::Worker { kernel: v1::Kernel::Opencl.into(), device, ..worker("gpu") };
        let wide = workers_table(std::slice::from_ref(&gpu), None);
        assert!(wide.contains(" opencl (NVIDIA H100 80GB HBM3) "), "{wide}");
        let narrow = workers_table(std::slice::from_ref(&gpu), Some(WIDTH));
        assert!(narrow.lines().all(|line| line.chars().count() <= WIDTH), "{narrow}");
        let json = serde_json::to_value(crate::json::Worker::from(&gpu)).unwrap();
        assert_eq!((&json["kernel"], &json["device"]), (&"opencl".into(), &gpu.device.into()));
    }

    #[test]
    fn notes_name_paused_workers_and_other_releases() {
        let mut workers = [worker("a"), worker("b")];
        workers[1].state = WorkerState::Paused.into();
        workers[1].paused = "on battery".to_owned();
        workers[1].version = "9.8.7".to_owned();
        let table = workers_table(&workers, None);
        assert!(table.contains("\nb is paused: on battery\n"), "{table}");
        assert!(table.contains("9.8.7 (1 worker)"), "{table}");
    }

    #[test]
    fn equal_names_get_ids_and_rows_are_not_sorted_by_speed() {
        let named = |id, name: &str| v1::Worker {
            id: vec![id; 16],
            state: WorkerState::Working.into(),
            ..worker(name)
        };
        let mut workers = [named(3, "a"), named(2, "c"), named(4, "b"), named(1, "a")];
        workers[1].state = WorkerState::Lost.into();
        workers[2].cost_per_second = 1e9;
        let rows = worker_rows(&workers);
        let names: Vec<_> = rows.iter().map(|row| row.cells[0].as_str()).collect();
        assert_eq!(names, ["c", "a (01010101)", "a (03030303)", "b"]);
    }
}
