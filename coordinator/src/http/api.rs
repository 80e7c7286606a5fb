//! The JSON interface, version 1: the objects of `queensctl --json`, and operator
//! commands with the options of `queensctl`.

use std::{fmt::Display, str::FromStr, sync::Arc, time::Duration};

use auth::{NewToken, Role, Subject, TokenAuthError};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use common::{
    board::Board,
    choice::{MethodChoice, choose},
    messages::run::{RunId, WorkerId},
    plan::{BadSpec, Plan, PlanSpec, TaskId},
};
use proto::v1;
use scheduler::{Command, MapState, RunSummary, TaskView, WorkersPart, ledger::Recheck};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{task::spawn_blocking, time::timeout};
use tonic::Code;
use view::{
    RunSelector, SelectableRun,
    json::{self, Decimal},
};

use super::{
    App,
    guard::{Input, Query, Refusal},
    map::{Sheets, TaskMap, Window, task_map},
};
use crate::{
    driver::served_first,
    message::{self, start_run, workers_page},
};

type Answer<T> = Result<Json<T>, Refusal>;

/// Time for the driver to answer a probe.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    healthy: bool,
}

/// Answers that the process is running.
pub(super) async fn health() -> Json<Health> {
    Json(Health { healthy: true })
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Ready {
    ready: bool,
}

/// Answers whether the driver serves runs.
pub(super) async fn ready(State(app): State<App>) -> Response {
    let answered = timeout(READY_TIMEOUT, app.driver.runs()).await;
    let ready = matches!(answered, Ok(Ok(_))) && app.driver.outage().is_none();
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Ready { ready })).into_response()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusQuery {
    /// A run: four digits of its id, N=22 or last; the run that is served first if absent.
    run: Option<String>,
}

/// Answers with the status of a run, by default the one served first.
pub(super) async fn status(
    State(app): State<App>,
    Query(query): Query<StatusQuery>,
) -> Answer<json::Status> {
    let run = match query.run {
        Some(name) => find(&app, &name).await?,
        None => first(&app).await?,
    };
    status_answer(&app, run).await
}

pub(super) async fn run(State(app): State<App>, Path(name): Path<String>) -> Answer<json::Status> {
    let run = find(&app, &name).await?;
    status_answer(&app, run).await
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Runs {
    runs: Vec<json::Run>,
}

pub(super) async fn runs(State(app): State<App>) -> Answer<Runs> {
    let runs = app.driver.runs().await?;
    Ok(Json(Runs { runs: runs.iter().map(summary).collect() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkersQuery {
    /// next of the previous page.
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    after: Option<String>,
    /// Maximum number of workers in the answer; 0, and anything above 200, means 200.
    #[serde(default)]
    limit: u64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Workers {
    workers: Vec<json::Worker>,
    totals: json::WorkerTotals,
    /// Value of after for the next page; null on the last page.
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    next: Option<String>,
}

/// Answers with a page of all workers.
pub(super) async fn workers(
    State(app): State<App>,
    Query(WorkersQuery { after, limit }): Query<WorkersQuery>,
) -> Answer<Workers> {
    let parsed = |id: String| {
        let id = u128::from_str_radix(&id, 16).ok().filter(|_| id.len() == 32).map(WorkerId);
        id.ok_or_else(|| invalid("after", "expected the 32 hexadecimal digits of a worker's id"))
    };
    let after = after.map(parsed).transpose()?;
    let page = workers_page(&app.driver, after, limit).await?;
    Ok(Json(Workers {
        workers: page.workers.iter().map(json::Worker::from).collect(),
        totals: page.totals.unwrap_or_default().into(),
        next: (!page.next.is_empty()).then(|| common::messages::hex::encode(&page.next)),
    }))
}

pub(super) type Caller = axum::Extension<Subject>;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecheckRequest {
    /// auto, all, or a number such as 0.1.
    pub(super) recheck: String,
}

pub(super) async fn recheck(
    app: State<App>,
    run: Path<String>,
    by: Caller,
    Input(request): Input<RecheckRequest>,
) -> Answer<json::Run> {
    let part: Recheck = read("recheck", &request.recheck)?;
    control(app, run, by, Command::Recheck(part)).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PriorityRequest {
    /// Runs of higher priority are served first.
    priority: i32,
}

pub(super) async fn priority(
    app: State<App>,
    run: Path<String>,
    by: Caller,
    Input(request): Input<PriorityRequest>,
) -> Answer<json::Run> {
    control(app, run, by, Command::Priority(request.priority)).await
}

#[derive(Serialize, JsonSchema)]
pub(super) struct NamedWorker {
    /// Name and identity of the worker.
    worker: String,
}

/// Drains a worker, by its name or a prefix of its identity.
pub(super) async fn drain(
    app: State<App>,
    worker: Path<String>,
    by: Caller,
) -> Answer<NamedWorker> {
    let worker = app.driver.drain(worker.0, by.name().cloned()).await?;
    Ok(Json(NamedWorker { worker }))
}

/// Readmits a worker that returned wrong counts.
pub(super) async fn trust(
    app: State<App>,
    worker: Path<String>,
    by: Caller,
) -> Answer<NamedWorker> {
    let worker = app.driver.trust(worker.0, by.name().cloned()).await?;
    Ok(Json(NamedWorker { worker }))
}

pub(super) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
    by: Caller,
) -> Answer<json::Run> {
    let run = find(&app, &name).await?;
    let run = app.driver.delete(run, by.name().cloned()).await?;
    Ok(Json(summary(&run)))
}

pub(super) async fn control(
    State(app): State<App>,
    Path(name): Path<String>,
    by: Caller,
    command: Command,
) -> Answer<json::Run> {
    let run = find(&app, &name).await?;
    let run = app.driver.control(run, command, by.name().cloned()).await?;
    Ok(Json(summary(&run)))
}

fn summary(run: &RunSummary) -> json::Run {
    json::Run::from(&message::run(run))
}

async fn status_answer(app: &App, run: RunId) -> Answer<json::Status> {
    let status = json::Status::try_from(&*status_of(app, run).await?);
    status.map(Json).map_err(|error| Refusal::internal(format!("{error:#}")))
}

pub(super) async fn status_of(app: &App, run: RunId) -> Result<Arc<v1::Status>, Refusal> {
    let status = app.statuses.get(run).await?;
    status.ok_or_else(|| no_run(run))
}

/// Returns the first running run, or else the newest run.
pub(super) async fn first(app: &App) -> Result<RunId, Refusal> {
    let runs = app.driver.runs().await?;
    let none = "there are no runs; start one with `queensctl submit`";
    served_first(&runs).ok_or_else(|| Refusal::not_found(none))
}

/// Returns the run that a selector matches.
pub(super) async fn find(app: &App, name: &str) -> Result<RunId, Refusal> {
    let parsed: RunSelector = name.parse().map_err(|bad: String| Refusal::not_found(bad))?;
    let runs = app.driver.runs().await?;
    let selectable = |RunSummary { manifest, .. }: &RunSummary| SelectableRun {
        created_unix_ms: manifest.created_unix_ms,
        run: manifest.run,
        n: manifest.spec.board.n().into(),
    };
    let runs: Vec<_> = runs.iter().map(selectable).collect();
    parsed.among(&runs).map_err(|error| Refusal::not_found(error.to_string()))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MapQuery {
    /// First task in the range.
    first: Option<u64>,
    /// Number of tasks.
    tasks: Option<u64>,
}

/// Answers with a part of the task map.
pub(super) async fn map(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(part): Query<MapQuery>,
) -> Answer<TaskMap> {
    let run = find(&app, &name).await?;
    if part.first.is_none() && part.tasks.is_none() {
        let map = app.broadcast.whole_map(run).await?;
        return map.map(Json).ok_or_else(|| no_run(run));
    }
    let (_, map_states) = app.driver.map_states(run).await?.ok_or_else(|| no_run(run))?;
    let (first, number) = (part.first.unwrap_or(0), part.tasks.unwrap_or(u64::MAX));
    Ok(Json(task_map(&map_states, first, number)))
}

/// Answers with the tasks grouped by frame or prefix, or a part of them.
pub(super) async fn grid(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(window): Query<Window>,
) -> Answer<Sheets> {
    let run = find(&app, &name).await?;
    let grid = match window.is_whole() {
        true => app.broadcast.whole_grid(run).await?,
        false => app.broadcast.grid(run, window).await?,
    };
    grid.map(Json).ok_or_else(|| {
        Refusal::not_found(format!("run {run} has no such sheet; see /api/v1/runs/{run}/grid"))
    })
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Task {
    task: u64,
    #[schemars(extend("enum" = MapState::ALL.map(MapState::name)))]
    state: &'static str,
    /// First unit of the task in the plan.
    first_unit: u64,
    /// Number of units.
    units: u64,
    /// Estimated microseconds of one reference core.
    cost: u64,
    count: Option<Decimal>,
    /// Names of the workers that lease it, and of the one whose count was accepted.
    workers: Vec<String>,
    /// Age of the accepted count, if this coordinator accepted it.
    accepted_ms_ago: Option<u64>,
    /// Who confirmed its count.
    confirmed_by: Option<&'static str>,
    failed_attempts: u64,
    conflicting_counts: Vec<Decimal>,
}

/// Returns a run and one of its tasks.
pub(super) async fn find_task(
    app: &App,
    name: &str,
    task: u64,
) -> Result<(RunId, TaskView), Refusal> {
    let run = find(app, name).await?;
    let view = app.driver.task(run, TaskId(task)).await?;
    let view = view.ok_or_else(|| Refusal::not_found(format!("run {run} has no task {task}")))?;
    Ok((run, view))
}

pub(super) async fn task(
    State(app): State<App>,
    Path((name, task)): Path<(String, u64)>,
) -> Answer<Task> {
    let (_, view) = find_task(&app, &name, task).await?;
    Ok(Json(Task {
        task: view.task.0,
        state: view.state.name(),
        first_unit: view.units.start,
        units: view.units.end - view.units.start,
        cost: view.cost,
        count: view.count.map(Decimal::new),
        workers: view.workers,
        accepted_ms_ago: view.accepted_ms_ago,
        confirmed_by: view.confirmed_by,
        failed_attempts: view.failed,
        conflicting_counts: view.reports.into_iter().map(Decimal::new).collect(),
    }))
}

/// Answers with the time series of a run.
pub(super) async fn history(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<json::History> {
    let run = find(&app, &name).await?;
    let status = status_of(&app, run).await?;
    let spec = status.run.as_ref().and_then(|run| run.spec);
    Ok(Json(app.broadcast.history(run).columns(spec.unwrap_or_default().n)))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Credits {
    /// Those with the most solutions first.
    credits: Vec<json::Credit>,
}

pub(super) async fn credits_of(app: &App, run: RunId) -> Result<Vec<v1::Credit>, Refusal> {
    let _working = app.working.lock().await;
    message::credits(&app.driver, run).await?.ok_or_else(|| no_run(run))
}

/// Answers with the contributors of a run.
pub(super) async fn credits(State(app): State<App>, Path(name): Path<String>) -> Answer<Credits> {
    let run = find(&app, &name).await?;
    let credits = credits_of(&app, run).await?;
    Ok(Json(Credits { credits: credits.iter().map(json::Credit::from).collect() }))
}

/// The query for the cost of a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CostQuery {
    /// Board size.
    #[schemars(range(min = 1, max = 32))]
    n: i64,
    /// Counting method; auto if absent.
    #[schemars(extend("enum" = ["auto", "rows", "frames"]))]
    method: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Cost {
    /// Human-readable work, disk space, and time on the connected threads.
    text: String,
}

/// Answers with the cost of a run that does not exist yet.
pub(super) async fn cost(
    State(app): State<App>,
    Query(CostQuery { n, method }): Query<CostQuery>,
) -> Answer<Cost> {
    let board: Board = read("n", &n.to_string())?;
    let method: MethodChoice = read("method", method.as_deref().unwrap_or("auto"))?;
    let choice = choose(board, method, None, None).map_err(|bad| invalid("method", bad))?;
    let threads = app.driver.workers(WorkersPart::ByAttention(0..0)).await?.totals.all().threads;
    let text = spawn_blocking(move || {
        let plan = Plan::new(PlanSpec::new(board, choice.layout))?;
        Ok::<_, BadSpec>(view::cost_text(&plan, threads))
    });
    let text = text.await.map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(Json(Cost { text: text.map_err(|bad| invalid("n", bad))? }))
}

/// Role and validity of a new join string.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinRequest {
    /// Role; worker if absent.
    #[schemars(extend("enum" = Role::ALL.map(Role::as_str)))]
    role: Option<String>,
    /// Name of the token; chosen if absent.
    name: Option<String>,
    /// Validity in days; 30 if absent.
    #[schemars(range(min = 1, max = 3650))]
    days: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Join {
    /// Name of the token, for revoking it.
    name: String,
    /// The join string, a secret.
    join: String,
}

/// Creates a join string, by default for a worker and valid for 30 days.
pub(super) async fn join(
    State(app): State<App>,
    Query(request): Query<JoinRequest>,
) -> Answer<Join> {
    let role: Role = read("role", request.role.as_deref().unwrap_or("worker"))?;
    let days = u64::from(request.days.unwrap_or(30));
    if !(1..=3650).contains(&days) {
        return Err(invalid("days", "expected 1 to 3650"));
    }
    let Some(tokens) = app.authenticator.tokens().cloned() else {
        let what = "this coordinator has no tokens (--insecure or --client-ca): start workers with --coordinator URL";
        return Err(Refusal::new(StatusCode::CONFLICT, what));
    };
    let name = match request.name.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => format!("page-{:08x}", rand::random::<u32>()),
    };
    let created = spawn_blocking(move || {
        let lifetime = Some(Duration::from_secs(days * 24 * 60 * 60));
        tokens.create(NewToken { lifetime, ..NewToken::new(role, &name) }).map(|join| (join, name))
    });
    let created = created.await.map_err(|error| Refusal::internal(error.to_string()))?;
    let (join, name) = created.map_err(|error| match error {
        TokenAuthError::Request(bad) => invalid("name", bad),
        error => Refusal::internal(error.to_string()),
    })?;
    Ok(Json(Join { name, join: join.expose() }))
}

/// The body of a submission: the options of `queensctl submit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitBody {
    /// Board size.
    #[schemars(range(min = 1, max = 32))]
    n: i64,
    /// Counting method; auto if absent.
    #[schemars(extend("enum" = ["auto", "rows", "frames"]))]
    method: Option<String>,
    /// Partition of the board by method rows.
    #[schemars(extend("enum" = ["first-rows", "border"]))]
    layout: Option<String>,
    /// Estimated microseconds of a task on one core; chosen by N if absent.
    #[schemars(range(min = 1))]
    task_cost: Option<u64>,
    /// Runs of higher priority are served first; 0 if absent.
    #[serde(default)]
    priority: i32,
    /// auto, all, or a number such as 0.1; auto if absent.
    recheck: Option<String>,
    /// Whether to start a new run even if one of this board exists.
    #[serde(default)]
    new_run: bool,
    /// Idempotency key, 1 to 64 letters, digits, '-', '_', '.' or ':': a repeated request with the same key
    /// returns the existing run.
    key: Option<String>,
}

impl SubmitBody {
    /// Converts the body into the gRPC request, so that its checks apply to both.
    pub(super) fn message(self) -> Result<v1::SubmitRequest, Refusal> {
        let board: Board = read("n", &self.n.to_string())?;
        let method: MethodChoice = read("method", self.method.as_deref().unwrap_or("auto"))?;
        let layout = self.layout.as_deref();
        let layout = layout.map(|text| read("layout", text)).transpose()?;
        let choice = choose(board, method, layout, None).map_err(|bad| invalid("method", bad))?;
        let defaults = PlanSpec::new(board, choice.layout);
        let spec = PlanSpec { task_cost: self.task_cost.unwrap_or(defaults.task_cost), ..defaults };
        if spec.task_cost == 0 {
            return Err(invalid("task_cost", "expected microseconds, at least 1"));
        }
        let recheck = self.recheck.as_deref();
        let recheck: Option<Recheck> = recheck.map(|text| read("recheck", text)).transpose()?;
        Ok(v1::SubmitRequest {
            spec: Some(spec.into()),
            priority: self.priority,
            new_run: self.new_run,
            recheck: recheck.map(Recheck::into),
            idempotency_key: self.key.unwrap_or_default(),
        })
    }
}

fn read<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|bad| invalid(field, bad))
}

fn invalid(field: &str, what: impl Display) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("{field}: {what}"))
}

/// Starts a run, or returns the one that a request with the same key has started.
pub(super) async fn submit(
    State(app): State<App>,
    by: Caller,
    Input(request): Input<SubmitBody>,
) -> Answer<json::Run> {
    let submitted = start_run(&app.driver, app.clock, request.message()?, by.name().cloned()).await;
    let run = submitted.map_err(|status| match status.code() {
        Code::AlreadyExists => Refusal::new(
            StatusCode::CONFLICT,
            format!("{}: use it, or request a new run", status.message()),
        ),
        _ => status.into(),
    })?;
    Ok(Json(summary(&run)))
}

pub(super) fn no_run(run: RunId) -> Refusal {
    Refusal::not_found(format!("run {run} not found; see /api/v1/runs"))
}
