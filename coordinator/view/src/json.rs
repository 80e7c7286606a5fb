//! The objects of `--json` and of the HTTP interface. Their doc comments are the schema's descriptions.

use std::{any::type_name, borrow::Cow, fmt::Display};

use anyhow::anyhow;
use common::messages::run::RunId;
use proto::v1;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::{Alert, lists::Verification, run_of};

/// A value of a message's enumeration, as its word.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Word<E>(E);

impl<E: TryFrom<i32> + Display> JsonSchema for Word<E> {
    fn schema_name() -> Cow<'static, str> {
        type_name::<E>().rsplit("::").next().unwrap_or_default().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let values = (0..).map_while(|number| E::try_from(number).ok());
        let words: Vec<_> = values.map(|value| value.to_string()).collect();
        json_schema!({ "type": "string", "enum": words })
    }
}

/// A decimal number, which may exceed 64 bits.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Decimal(#[schemars(regex(pattern = "^[0-9]+$"))] String);

impl Decimal {
    pub fn new(number: impl Into<u128>) -> Self {
        Self(number.into().to_string())
    }

    /// Converts a number of a message; `None` if it is empty.
    fn nonempty(text: &str) -> Option<Self> {
        nonempty(text).map(Self)
    }
}

impl From<&String> for Decimal {
    fn from(text: &String) -> Self {
        Self(text.clone())
    }
}

/// The id of a run: sixteen hexadecimal digits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunId")]
pub struct Id(#[schemars(regex(pattern = "^[0-9a-f]{16}$"))] String);

impl From<u64> for Id {
    fn from(run: u64) -> Self {
        Self(RunId(run).to_string())
    }
}

fn nonempty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A run in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Run {
    run: Id,
    /// Board size.
    n: u32,
    method: Option<&'static str>,
    layout: Option<&'static str>,
    /// Estimated microseconds of one reference core.
    task_cost: u64,
    /// SHA-256 of the plan.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    plan: String,
    state: Word<v1::RunState>,
    /// Name of the token that cancelled the run; null if unknown.
    cancelled_by: Option<String>,
    priority: i32,
    created_unix_ms: u64,
    /// Completed part of the run's cost, 0 to 1, tasks in progress included.
    fraction_done: f64,
    eta_seconds: Option<f64>,
    /// Time during which tasks were being counted.
    counting_seconds: f64,
    /// all(N), once the run is complete and has passed every check.
    solutions: Option<Decimal>,
    verification: Verification,
}

impl From<&v1::Run> for Run {
    fn from(run: &v1::Run) -> Self {
        let spec = run.spec.unwrap_or_default();
        let parsed = run_of(run).ok();
        Self {
            run: run.run.into(),
            n: spec.n,
            method: parsed.as_ref().map(|run| run.layout.method().name()),
            layout: parsed.as_ref().map(|run| run.layout.name()),
            task_cost: spec.task_cost,
            plan: common::messages::hex::encode(&run.plan_hash),
            state: Word(run.state()),
            cancelled_by: nonempty(&run.cancelled_by),
            priority: run.priority,
            created_unix_ms: run.created_unix_ms,
            fraction_done: run.fraction_done,
            eta_seconds: run.eta_seconds,
            counting_seconds: run.counting_seconds,
            solutions: Decimal::nonempty(&run.solutions),
            verification: Verification::of(run),
        }
    }
}

/// The part of one contributor in a run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Credit {
    /// The author of the records: a machine, and its token if it has one.
    contributor: String,
    /// Name that the machine gave itself; null if it has not called since the coordinator started.
    name: Option<String>,
    /// Tasks whose count stands.
    tasks: u64,
    /// Sum of their counts.
    solutions: Decimal,
    /// Part of the sum of all standing counts, 0 to 1.
    share: f64,
    /// Tasks in which a count of the contributor and another one agree.
    confirmed: u64,
}

impl From<&v1::Credit> for Credit {
    fn from(credit: &v1::Credit) -> Self {
        Self {
            contributor: credit.contributor.clone(),
            name: nonempty(&credit.name),
            tasks: credit.tasks,
            solutions: (&credit.solutions).into(),
            share: credit.share,
            confirmed: credit.confirmed,
        }
    }
}

/// The status of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Status {
    run: Id,
    /// Board size.
    n: u8,
    method: &'static str,
    state: Word<v1::RunState>,
    /// Name of the token that cancelled the run; null if unknown.
    cancelled_by: Option<String>,
    tasks: Tasks,
    /// Completed part of the run's cost, 0 to 1, tasks in progress included.
    fraction_done: f64,
    /// Time during which tasks were being counted.
    counting_seconds: f64,
    /// Remaining time since the creation.
    waiting_seconds: f64,
    /// Sum of the accepted counts, never a result.
    solutions_so_far: Decimal,
    estimate: Option<Estimate>,
    eta_seconds: Option<f64>,
    solutions_per_second: f64,
    /// The first 200 of the workers that are connected or away: those that need attention, then the fastest.
    workers: Vec<Worker>,
    worker_totals: WorkerTotals,
    rechecks: Rechecks,
    referee: Option<Referee>,
    /// What the run waits for or rechecks; empty otherwise.
    reason: String,
    alerts: Vec<Alert>,
    coordinator: Option<Coordinator>,
    /// Present once the run is finished.
    result: Option<Result>,
}

/// Numbers of tasks by state.
#[derive(Debug, Serialize, JsonSchema)]
struct Tasks {
    total: u64,
    done: u64,
    leased: u64,
    /// Leased tasks that a thread has started.
    counting: u64,
    pending: u64,
    parked: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Rechecks {
    conflicts: u64,
    /// Done tasks with a confirmed count.
    confirmed: u64,
    /// Tasks that the referee selected at random and recounted.
    recounted: u64,
    /// The first 100 tasks that are currently disputed.
    disputed_tasks: Vec<u64>,
}

/// The coordinator's own referee.
#[derive(Debug, Serialize, JsonSchema)]
struct Referee {
    /// Counting threads; 0 if it is off or has stopped.
    threads: u32,
    /// Tasks in progress.
    counting: u64,
    /// Whether it stopped because its own counts of a task differed: the coordinator's machine is faulty.
    broken: bool,
    /// Number of disputed tasks.
    disputed_tasks: u64,
}

/// The leading coordinator.
#[derive(Debug, Serialize, JsonSchema)]
struct Coordinator {
    /// Machine and process.
    name: String,
    since_unix_ms: u64,
    /// Number of the leadership term.
    term: u64,
    /// Age of the oldest result that may be missing in the archive; null without an archive.
    archive_behind_ms: Option<u64>,
    /// Free space on the data directory's file system; null without a data directory.
    disk_free_bytes: Option<u64>,
}

/// An estimate of all(N) with its interval.
#[derive(Debug, Serialize, JsonSchema)]
struct Estimate {
    solutions: Decimal,
    low: Decimal,
    high: Decimal,
    confidence: f64,
}

impl TryFrom<&v1::Status> for Status {
    type Error = anyhow::Error;

    fn try_from(status: &v1::Status) -> anyhow::Result<Self> {
        let message = status.run.as_ref().ok_or_else(|| anyhow!("run: must be set"))?;
        let run = run_of(message)?;
        let rechecks = status.rechecks.clone().unwrap_or_default();
        Ok(Self {
            run: message.run.into(),
            n: run.board.n(),
            method: run.layout.method().name(),
            state: Word(run.state),
            cancelled_by: nonempty(&message.cancelled_by),
            tasks: Tasks {
                total: status.tasks_total,
                done: status.tasks_done,
                leased: status.tasks_leased,
                counting: status.tasks_counting,
                pending: status.tasks_pending,
                parked: status.tasks_parked,
            },
            fraction_done: status.fraction_done,
            counting_seconds: status.counting_seconds,
            waiting_seconds: status.waiting_seconds,
            solutions_so_far: Decimal::from(&status.solutions_so_far),
            estimate: status.estimate.as_ref().map(|estimate| Estimate {
                solutions: Decimal::from(&estimate.solutions),
                low: Decimal::from(&estimate.low),
                high: Decimal::from(&estimate.high),
                confidence: estimate.confidence,
            }),
            eta_seconds: status.eta_seconds,
            solutions_per_second: status.solutions_per_second,
            workers: status.workers.iter().map(Worker::from).collect(),
            worker_totals: status.worker_totals.unwrap_or_default().into(),
            rechecks: Rechecks {
                conflicts: rechecks.conflicts,
                confirmed: status.tasks_confirmed,
                recounted: status.tasks_recounted,
                disputed_tasks: rechecks.disputed_tasks,
            },
            referee: status.referee.as_ref().map(|referee| Referee {
                threads: referee.threads,
                counting: referee.counting,
                broken: referee.broken,
                disputed_tasks: referee.disputed,
            }),
            reason: status.reason.clone(),
            alerts: Alert::all(status),
            coordinator: status.coordinator.as_ref().map(|coordinator| Coordinator {
                name: coordinator.name.clone(),
                since_unix_ms: coordinator.since_unix_ms,
                term: coordinator.term,
                archive_behind_ms: coordinator.archive_behind_ms,
                disk_free_bytes: coordinator.disk_free_bytes,
            }),
            result: status.result.as_ref().map(Result::from),
        })
    }
}

/// The result of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Result {
    /// all(N), or without the disputed tasks.
    solutions: Decimal,
    /// Solutions that are distinct under rotation and reflection; null if the total contradicts the classes.
    fundamental: Option<Decimal>,
    classes: Option<Classes>,
    published: Word<v1::Published>,
    /// Whether no check failed, and the total matches the published one or the wrong counts in it are bounded.
    verified: bool,
    /// The first 100 disputed tasks.
    disputed_tasks: Vec<u64>,
    checks: Vec<Check>,
    /// Time during which tasks were being counted.
    seconds: f64,
    /// Remaining time between the creation and the last count.
    waiting_seconds: f64,
}

/// Fundamental solutions by symmetry.
#[derive(Debug, Serialize, JsonSchema)]
struct Classes {
    asymmetric: Decimal,
    half_turn: Decimal,
    quarter_turn: Decimal,
}

/// A check of a total.
#[derive(Debug, Serialize, JsonSchema)]
struct Check {
    name: String,
    outcome: Word<v1::CheckOutcome>,
    reason: String,
}

impl From<&v1::Result> for Result {
    fn from(result: &v1::Result) -> Self {
        let fundamental = Decimal::nonempty(&result.fundamental);
        let check = |check: &v1::Check| Check {
            name: check.name.clone(),
            outcome: Word(check.outcome()),
            reason: check.reason.clone(),
        };
        Self {
            solutions: Decimal::from(&result.solutions),
            classes: fundamental.is_some().then(|| Classes {
                asymmetric: Decimal::from(&result.asymmetric),
                half_turn: Decimal::from(&result.half_turn),
                quarter_turn: Decimal::from(&result.quarter_turn),
            }),
            fundamental,
            published: Word(result.published()),
            verified: result.verified,
            disputed_tasks: result.disputed_tasks.clone(),
            checks: result.checks.iter().map(check).collect(),
            seconds: result.seconds,
            waiting_seconds: result.waiting_seconds,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Worker {
    id: String,
    name: String,
    version: String,
    /// null until the worker has called since the coordinator's start.
    kernel: Option<Word<v1::Kernel>>,
    /// Names of the devices that count beside the CPU; empty without any.
    device: String,
    threads: u32,
    state: Word<v1::WorkerState>,
    leases: u64,
    tasks_done: u64,
    /// The task that it has been counting for the longest time.
    current_task: Option<u64>,
    /// Time since it began that task.
    current_task_ms: Option<u64>,
    last_seen_ms_ago: u64,
    /// Estimated microseconds of one reference core, per second.
    cost_per_second: f64,
    failed_threads: u32,
    /// Tasks in progress at its last contact, each counted by a crew of its threads.
    crews: u32,
    /// Why it is paused; empty otherwise.
    paused: String,
    /// Promised return of its package; null unless it is away.
    away_until_unix_ms: Option<u64>,
    /// Time at which others get its tasks; null unless it is silent.
    lost_at_unix_ms: Option<u64>,
}

impl From<&v1::Worker> for Worker {
    fn from(worker: &v1::Worker) -> Self {
        Self {
            id: common::messages::hex::encode(&worker.id),
            name: worker.name.clone(),
            version: worker.version.clone(),
            kernel: (worker.threads > 0).then(|| Word(worker.kernel())),
            device: worker.device.clone(),
            threads: worker.threads,
            state: Word(worker.state()),
            leases: worker.leases,
            tasks_done: worker.tasks_done,
            current_task: worker.current_task,
            current_task_ms: worker.current_task.map(|_| worker.current_task_ms),
            last_seen_ms_ago: worker.last_seen_ms_ago,
            cost_per_second: worker.cost_per_second,
            failed_threads: worker.failed_threads,
            crews: worker.crews,
            paused: worker.paused.clone(),
            away_until_unix_ms: worker.away_until_unix_ms,
            lost_at_unix_ms: worker.lost_at_unix_ms,
        }
    }
}

/// Numbers of workers and of their threads.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WorkerTotals {
    workers: u64,
    threads: u64,
    /// Silent or lost.
    silent: u64,
    /// Known only from stored leases: they have not called since the coordinator started.
    reconnecting: u64,
    barred: u64,
    /// With counting threads that failed their self-test.
    failing: u64,
    /// Packages that are away, which are not among the workers.
    away: u64,
}

impl From<v1::WorkerTotals> for WorkerTotals {
    fn from(totals: v1::WorkerTotals) -> Self {
        let v1::WorkerTotals { workers, threads, silent, reconnecting, barred, failing, away } =
            totals;
        Self { workers, threads, silent, reconnecting, barred, failing, away }
    }
}

/// An event of a run or of the cluster.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Event {
    /// Increases with every event.
    sequence: u64,
    unix_ms: u64,
    /// null for the cluster.
    run: Option<Id>,
    /// Kind: submitted, paused, cancelled, conflict, referee, worker_lost, leader, …
    kind: String,
    /// Description for people.
    text: String,
    /// Name of the token that caused it.
    by: Option<String>,
}

impl From<&v1::Event> for Event {
    fn from(event: &v1::Event) -> Self {
        Self {
            sequence: event.sequence,
            unix_ms: event.unix_ms,
            run: event.run.map(Id::from),
            kind: event.kind.clone(),
            text: event.text.clone(),
            by: nonempty(&event.by),
        }
    }
}

/// The time series of a run, as columns for charts.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct History {
    pub(crate) unix_seconds: Vec<u64>,
    /// Connected workers.
    pub(crate) workers: Vec<u64>,
    /// Rates by machine; those after the seventh are summed up as others.
    pub(crate) machines: Vec<Machine>,
    pub(crate) fraction_done: Vec<f64>,
    pub(crate) solutions_per_second: Vec<f64>,
    pub(crate) estimate_low: Vec<Option<f64>>,
    pub(crate) estimate: Vec<Option<f64>>,
    pub(crate) estimate_high: Vec<Option<f64>>,
    pub(crate) reference: Reference,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) solutions_per_second: Vec<f64>,
}

/// The total to compare with.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Reference {
    pub(crate) solutions: f64,
    pub(crate) source: ReferenceSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReferenceSource {
    Published,
    Extrapolated,
}
