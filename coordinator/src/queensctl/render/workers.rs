//! Workers.

use proto::v1;
use serde_json::{Value, json};

use super::{hexadecimal, kernel};
use crate::text::{span, table};

pub(in crate::queensctl) fn worker_json(worker: &v1::Worker) -> Value {
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
    })
}

pub(in crate::queensctl) fn workers_table(workers: &[v1::Worker]) -> String {
    let heads = [
        "WORKER", "NAME", "STATE", "KERNEL", "THREADS", "LEASES", "DONE", "SPEED", "SEEN",
        "VERSION",
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
            kernel(worker.kernel()).to_owned(),
            worker.threads.to_string(),
            worker.leases.to_string(),
            worker.tasks_done.to_string(),
            format!("{:.2}", worker.cost_per_second / 1e6),
            format!("{} ago", span(seen)),
            worker.version.clone(),
        ]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    table(&heads, &rows)
}
