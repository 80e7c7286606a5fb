//! `/metrics`: what monitoring reads, in the OpenMetrics text format.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use axum::{
    extract::State,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use common::run::RunId;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Registry, Unit},
};
use proto::v1;

use super::{error::Refusal, server::App};
use crate::{
    driver::Serving,
    render,
    sched::{WorkerState, WorkerStatus},
    store::RunState,
};

/// Runs whose state is told in full: those that are open come first.
const TOLD_RUNS: usize = 100;

/// What the format calls itself.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Requests answered over HTTP so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(Family<RequestLabels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    code: u16,
}

impl Requests {
    /// Counts an answer. Routes are the server's own, so that there is an end to the labels.
    pub(super) fn count(&self, method: &Method, route: &str, code: StatusCode) {
        let method = match *method {
            Method::GET | Method::HEAD | Method::POST | Method::DELETE => method.as_str(),
            _ => "other",
        };
        let labels = RequestLabels {
            method: method.to_owned(),
            route: route.to_owned(),
            code: code.as_u16(),
        };
        self.0.get_or_create(&labels).inc();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRun {
    run: String,
    n: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTasks {
    run: String,
    n: u32,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRechecks {
    run: String,
    n: u32,
    outcome: &'static str,
}

type Gauges<L> = Family<L, Gauge>;
type Fractions<L> = Family<L, Gauge<f64, AtomicU64>>;

pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Refusal> {
    let mut registry = Registry::with_prefix("queens");
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The program that answers", version);
    let mut runs = app.driver.runs().await?;
    count_states(&mut registry, runs.iter().map(|run| run.state));
    runs.sort_by_key(|run| run.state != RunState::Running);
    let mut told = BTreeMap::new();
    for run in runs.iter().take(TOLD_RUNS) {
        let run = run.manifest.run;
        if let Some(status) = app.statuses.get(run).await? {
            told.insert(run, status);
        }
    }
    tell_runs(&mut registry, &told);
    tell_workers(&mut registry, &app.driver.workers().await?);
    if let Some(serving) = app.driver.serving() {
        tell_serving(&mut registry, serving);
    }
    registry.register(
        "http_requests",
        "Requests answered over HTTP",
        app.requests.0.clone(),
    );
    app.storage.tell(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|fmt::Error| {
        let message = "the metrics cannot be written";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    let kind = HeaderValue::from_static(CONTENT_TYPE);
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn count_states(registry: &mut Registry, states: impl Iterator<Item = RunState>) {
    let runs = Gauges::<OfState>::default();
    for state in [
        v1::RunState::Running,
        v1::RunState::Paused,
        v1::RunState::Cancelled,
        v1::RunState::Complete,
        v1::RunState::Contradicted,
        v1::RunState::Disputed,
    ] {
        let state = render::state(state);
        runs.get_or_create(&OfState { state }).set(0);
    }
    for state in states {
        let state = render::state(render::message::run_state(state));
        runs.get_or_create(&OfState { state }).inc();
    }
    registry.register("runs", "Runs of the data directory, by state", runs);
}

fn tell_runs(registry: &mut Registry, told: &BTreeMap<RunId, Arc<v1::Status>>) {
    let tasks = Gauges::<OfTasks>::default();
    let progress = Fractions::<OfRun>::default();
    let solutions = Fractions::<OfRun>::default();
    let speed = Fractions::<OfRun>::default();
    let left = Fractions::<OfRun>::default();
    let contested = Gauges::<OfRun>::default();
    let rechecks = Gauges::<OfRechecks>::default();
    for (run, status) in told {
        let spec = status.run.as_ref().and_then(|run| run.spec);
        let n = spec.map_or(0, |spec| spec.n);
        let run = run.to_string();
        let of_run = OfRun {
            run: run.clone(),
            n,
        };
        for (state, number) in [
            ("done", status.tasks_done),
            ("leased", status.tasks_leased),
            ("pending", status.tasks_pending),
            ("parked", status.tasks_parked),
        ] {
            let run = run.clone();
            let labels = OfTasks { run, n, state };
            tasks.get_or_create(&labels).set(signed(number));
        }
        progress.get_or_create(&of_run).set(status.fraction_done);
        let so_far = status.solutions_so_far.parse().unwrap_or(f64::NAN);
        solutions.get_or_create(&of_run).set(so_far);
        speed
            .get_or_create(&of_run)
            .set(status.solutions_per_second);
        if let Some(seconds) = status.eta_seconds {
            left.get_or_create(&of_run).set(seconds);
        }
        let second = status.rechecks.clone().unwrap_or_default();
        let in_dispute = second.quarantined_tasks.len() as u64;
        contested.get_or_create(&of_run).set(signed(in_dispute));
        for (outcome, number) in [
            ("agreed", second.agreed),
            ("contradicted", second.conflicts),
        ] {
            let run = run.clone();
            let labels = OfRechecks { run, n, outcome };
            rechecks.get_or_create(&labels).set(signed(number));
        }
    }
    registry.register("run_tasks", "Tasks of a run, by state", tasks);
    registry.register_with_unit(
        "run_progress",
        "Part of a run's estimated work that is done, 0 to 1",
        Unit::Other("ratio".to_owned()),
        progress,
    );
    registry.register(
        "run_solutions_so_far",
        "Sum of the counts accepted so far, rounded to a double",
        solutions,
    );
    registry.register(
        "run_solutions_per_second",
        "Solutions counted a second, over the last five minutes",
        speed,
    );
    registry.register_with_unit(
        "run_remaining",
        "Time left at the speed of the last five minutes; absent while nothing moves",
        Unit::Seconds,
        left,
    );
    registry.register(
        "run_contested_tasks",
        "Tasks whose counts contradict each other now, 100 at most",
        contested,
    );
    registry.register(
        "run_second_counts",
        "Tasks counted a second time, by what came of it",
        rechecks,
    );
}

fn tell_workers(registry: &mut Registry, workers: &[WorkerStatus]) {
    let states = Gauges::<OfState>::default();
    let threads = Gauges::<OfState>::default();
    for state in WorkerState::ALL {
        let state = state.name();
        states.get_or_create(&OfState { state }).set(0);
        threads.get_or_create(&OfState { state }).set(0);
    }
    let mut failed = 0u64;
    let mut last_call = None::<u64>;
    for worker in workers {
        let state = worker.state.name();
        states.get_or_create(&OfState { state }).inc();
        let number = i64::from(worker.info.threads);
        threads.get_or_create(&OfState { state }).inc_by(number);
        failed += u64::from(worker.failed_threads);
        let ago = worker.last_seen_ms_ago;
        last_call = Some(last_call.map_or(ago, |least| least.min(ago)));
    }
    registry.register("workers", "Workers, by what they do", states);
    registry.register(
        "worker_threads",
        "Threads of workers, by what they do",
        threads,
    );
    let failed_threads = Gauge::<i64>::default();
    failed_threads.set(signed(failed));
    registry.register(
        "failed_threads",
        "Counting threads that counted what is known wrong, and were stopped",
        failed_threads,
    );
    if let Some(ms) = last_call {
        let since = Gauge::<f64, AtomicU64>::default();
        since.set(Duration::from_millis(ms).as_secs_f64());
        registry.register_with_unit(
            "last_worker_call_age",
            "Time since any worker called; absent before the first call",
            Unit::Seconds,
            since,
        );
    }
}

fn tell_serving(registry: &mut Registry, serving: &Serving) {
    let leader = Info::new([("name", serving.leader.name.clone())]);
    registry.register(
        "leader",
        "The coordinator that leads, which is this one",
        leader,
    );
    let term = Gauge::<i64>::default();
    term.set(signed(serving.leader.term));
    registry.register("leader_term", "Its term: higher than any before", term);
    let since = Gauge::<f64, AtomicU64>::default();
    since.set(Duration::from_millis(serving.leader.since_unix_ms).as_secs_f64());
    registry.register_with_unit(
        "leader_since_timestamp",
        "When it began to lead, since 1970",
        Unit::Seconds,
        since,
    );
    if let Some(copied) = &serving.copied {
        let behind = Gauge::<f64, AtomicU64>::default();
        behind.set(copied.behind().as_secs_f64());
        registry.register_with_unit(
            "archive_behind",
            "Age of the oldest result that may be lacking in the archive; absent without one",
            Unit::Seconds,
            behind,
        );
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
