//! `/metrics` in the OpenMetrics text format.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use axum::{
    extract::State,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        info::Info,
    },
    registry::{Registry, Unit},
};
use proto::v1;
use scheduler::{RunSummary, WorkerState, WorkerTotals, WorkersPart};
use store::{RunManifest, RunState, SyncTimes};

use super::{App, guard::Refusal};
use crate::{
    driver::{DiskSpaceMonitor, Serving},
    message,
};

/// Maximum number of runs with separate metrics; running ones come first.
const MAX_REPORTED_RUNS: usize = 100;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Default)]
pub(super) struct Requests(Family<Labels, Counter>);

impl Requests {
    /// Counts an answer; `route` is the router's pattern, which bounds the labels.
    pub(super) fn count(&self, method: &Method, route: &str, code: StatusCode) {
        let method = match *method {
            Method::GET | Method::HEAD | Method::POST | Method::DELETE => method.as_str(),
            _ => "other",
        };
        let code = code.as_u16().to_string();
        let labels =
            vec![("method", method.to_owned()), ("route", route.to_owned()), ("code", code)];
        self.0.get_or_create(&labels).inc();
    }
}

type Labels = Vec<(&'static str, String)>;

pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Refusal> {
    let mut registry = registry();
    let mut runs = app.driver.runs().await?;
    count_states(&mut registry, &runs);
    runs.sort_by_key(|run| run.state != RunState::Running);
    let mut reported = Vec::new();
    for summary in runs.iter().take(MAX_REPORTED_RUNS) {
        let RunManifest { run, spec, .. } = &summary.manifest;
        if let Some(status) = app.statuses.get(*run).await? {
            let labels = vec![("run", run.to_string()), ("n", spec.board.to_string())];
            reported.push((labels, status, summary.is_served));
        }
    }
    register_runs(&mut registry, &reported);
    let none = WorkersPart::ByAttention(0..0);
    register_workers(&mut registry, &app.driver.workers(none).await?.totals);
    if let Some(serving) = &app.driver.serving {
        register_serving(&mut registry, serving);
    }
    registry.register("http_requests", "Requests answered over HTTP", app.requests.0.clone());
    register_storage(&mut registry, &app.storage);
    encoded(&registry)
}

/// The metrics of a standby.
pub(super) fn of_standby(heartbeat_age: Duration) -> Result<Response, Refusal> {
    let mut registry = registry();
    let help = "Time since this standby last heard the leader; absent on the leader";
    seconds(&mut registry, "leader_heartbeat_age", help, heartbeat_age);
    encoded(&registry)
}

/// Returns a registry with the metrics of every coordinator.
fn registry() -> Registry {
    let mut registry = Registry::with_prefix("queens");
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "Version of the coordinator", version);
    registry
}

fn encoded(registry: &Registry) -> Result<Response, Refusal> {
    let mut text = String::new();
    encode(&mut text, registry)
        .map_err(|fmt::Error| Refusal::internal("cannot encode the metrics"))?;
    let kind = HeaderValue::from_static(CONTENT_TYPE);
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn count_states(registry: &mut Registry, runs: &[RunSummary]) {
    use v1::RunState::{Cancelled, Complete, Contradicted, Disputed, Paused, Running, Verifying};
    let all = [Running, Verifying, Paused, Cancelled, Complete, Contradicted, Disputed];
    let states = all.map(|state| {
        let in_state = runs.iter().filter(|run| message::run_state(run) == state);
        (vec![("state", state.to_string())], in_state.count() as u64)
    });
    numbers(registry, "runs", "Runs by state", states);
}

fn register_runs(registry: &mut Registry, reported: &[(Labels, Arc<v1::Status>, bool)]) {
    let by_run = |value: fn(&v1::Status) -> Option<f64>| {
        let values = reported.iter().map(move |(labels, status, _)| (labels, value(status)));
        values.filter_map(|(labels, value)| Some((labels.clone(), value?)))
    };
    // Several values of a run, with one more label.
    let by_label = |label: &'static str, values: fn(&v1::Status) -> Vec<(&'static str, u64)>| {
        reported.iter().flat_map(move |(labels, status, _)| {
            let labeled = move |value: &str| [&labels[..], &[(label, value.to_owned())]].concat();
            values(status).into_iter().map(move |(value, number)| (labeled(value), number))
        })
    };
    // Autoscalers start workers for pending tasks.
    let tasks = reported.iter().flat_map(|(labels, status, is_served)| {
        let (pending, waiting) = match is_served {
            true => (status.tasks_pending, 0),
            false => (0, status.tasks_pending),
        };
        let states = [
            ("done", status.tasks_done),
            ("leased", status.tasks_leased),
            ("pending", pending),
            ("waiting", waiting),
            ("parked", status.tasks_parked),
        ];
        let labeled = |state: &str| [&labels[..], &[("state", state.to_owned())]].concat();
        states.map(|(state, number)| (labeled(state), number))
    });
    let help = "Tasks of a run by state; waiting tasks are those of a run that is not served now";
    numbers(registry, "run_tasks", help, tasks);
    let help = "Completed part of a run's estimated cost, 0 to 1";
    let ratio = Unit::Other("ratio".to_owned());
    let progress = by_run(|status| Some(status.fraction_done));
    registry.register_with_unit("run_progress", help, ratio, family(progress));
    let help = "Sum of the accepted counts, rounded to a double";
    let solutions = by_run(|status| Some(status.solutions_so_far.parse().unwrap_or(f64::NAN)));
    registry.register("run_solutions_so_far", help, family(solutions));
    let help = "Solutions counted per second over the last five minutes";
    let speed = by_run(|status| Some(status.solutions_per_second));
    registry.register("run_solutions_per_second", help, family(speed));
    let help = "Remaining time at the rate of the last five minutes; absent while the run makes no progress";
    let left = by_run(|status| status.eta_seconds);
    registry.register_with_unit("run_remaining", help, Unit::Seconds, family(left));
    let disputed = reported.iter().map(|(labels, status, _)| {
        (labels.clone(), status.referee.as_ref().map_or(0, |referee| referee.disputed))
    });
    numbers(registry, "run_disputed_tasks", "Disputed tasks", disputed);
    let rechecks = by_label("outcome", |status| {
        let conflicts = status.rechecks.as_ref().map_or(0, |rechecks| rechecks.conflicts);
        vec![("agreed", status.tasks_confirmed), ("conflict", conflicts)]
    });
    numbers(registry, "run_rechecks", "Rechecked tasks by outcome", rechecks);
}

fn register_workers(registry: &mut Registry, totals: &WorkerTotals) {
    let labels = |state: WorkerState| vec![("state", state.name().to_owned())];
    let workers = WorkerState::ALL.map(|state| (labels(state), totals.of(state).workers));
    numbers(registry, "workers", "Workers by state", workers);
    let threads = WorkerState::ALL.map(|state| (labels(state), totals.of(state).threads));
    numbers(registry, "worker_threads", "Threads of workers by state", threads);
    let help = "Counting threads that failed their self-test and were stopped";
    registry.register("failed_threads", help, ConstGauge::new(signed(totals.failed_threads)));
    if let Some(ms) = totals.last_call_ms_ago {
        let help = "Time since any worker last made contact; absent before the first contact";
        seconds(registry, "last_worker_call_age", help, Duration::from_millis(ms));
    }
}

fn register_serving(registry: &mut Registry, serving: &Serving) {
    let leader = Info::new([("name", serving.leader.name.clone())]);
    registry.register("leader", "Name of this coordinator, the leader", leader);
    let help = "Leadership term of this coordinator, higher than all earlier terms";
    registry.register("leader_term", help, ConstGauge::new(signed(serving.leader.term)));
    let since = Duration::from_millis(serving.leader.since_unix_ms);
    seconds(registry, "leader_since_timestamp", "Start of this leadership, in Unix time", since);
    let help = "Time for which the store's database has not answered; 0 while it answers";
    let away = serving.outages.current().map(|outage| outage.duration());
    seconds(registry, "store_outage", help, away.unwrap_or_default());
    if let Some(copied) = &serving.archive_lag {
        let help = "Age of the oldest result that the archive may lack; absent without an archive";
        seconds(registry, "archive_behind", help, copied.behind());
    }
}

/// The state of the storage, for the metrics.
#[derive(Clone, Debug, Default)]
pub struct StorageHealth {
    /// Commit latencies of groups of counts.
    pub sync_times: SyncTimes,
    /// The disk of the data directory; `None` with a database.
    pub disk: Option<DiskSpaceMonitor>,
    /// The data directory; `None` with a database.
    pub directory: Option<PathBuf>,
}

fn register_storage(registry: &mut Registry, storage: &StorageHealth) {
    // Without a unit: some parsers reject a unit line of histograms.
    registry.register(
        "store_sync_seconds",
        "Commit latency of a group of counts: fdatasync of the journal, or commit of the database",
        storage.sync_times.histogram().clone(),
    );
    let Some(space) = storage.disk.as_ref().and_then(DiskSpaceMonitor::get) else {
        return;
    };
    for (name, help, bytes) in [
        ("data_disk_free", "Free space on the data directory's file system", space.free),
        ("data_disk_size", "Size of the data directory's file system", space.total),
    ] {
        let bytes = ConstGauge::new(bytes as f64);
        registry.register_with_unit(name, help, Unit::Bytes, bytes);
    }
}

/// Returns gauges with these values.
fn family(
    values: impl IntoIterator<Item = (Labels, f64)>,
) -> Family<Labels, Gauge<f64, AtomicU64>> {
    let family = Family::default();
    for (labels, value) in values {
        let gauge: &Gauge<f64, AtomicU64> = &family.get_or_create(&labels);
        gauge.set(value);
    }
    family
}

fn seconds(registry: &mut Registry, name: &str, help: &str, value: Duration) {
    registry.register_with_unit(name, help, Unit::Seconds, ConstGauge::new(value.as_secs_f64()));
}

/// Registers gauges of whole numbers.
fn numbers(
    registry: &mut Registry,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, u64)>,
) {
    let family = Family::<Labels, Gauge>::default();
    for (labels, number) in values {
        family.get_or_create(&labels).set(signed(number));
    }
    registry.register(name, help, family);
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
