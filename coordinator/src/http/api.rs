//! The JSON interface, version 1: what `queensctl --json` prints, and an operator's commands.

use axum::{
    Json,
    extract::{Path, Query, State, rejection::JsonRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use common::{plan::TaskId, run::RunId};
use proto::v1;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    error::Refusal,
    grid::Window,
    map::{MAP_CELLS, map_json},
    server::{ANSWER_WITHIN, App},
};
use crate::{
    doors::Role,
    ledger::Recheck,
    name::RunName,
    render::{message, reference_value, run_json, status_json, worker_json},
    sched::{Command, RunSummary},
};

/// The interface's own description.
pub(super) const DESCRIPTION: &str = include_str!("openapi.json");

/// Text in answers is JSON.
type Answer = Result<Json<Value>, Refusal>;

/// The process answers.
pub(super) async fn health() -> Json<Value> {
    Json(json!({ "healthy": true }))
}

/// The driver answers too: runs are served.
pub(super) async fn ready(State(app): State<App>) -> Response {
    let answered = timeout(ANSWER_WITHIN / 10, app.driver.runs()).await;
    let ready = matches!(answered, Ok(Ok(_)));
    let code = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(json!({ "ready": ready }))).into_response()
}

pub(super) async fn description() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], DESCRIPTION).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfRun {
    run: Option<String>,
}

/// The run asked for, or the one served first.
pub(super) async fn status(State(app): State<App>, Query(of): Query<OfRun>) -> Answer {
    let run = match of.run {
        Some(name) => find(&app, &name).await?,
        None => first(&app).await?,
    };
    shown(&app, run).await
}

pub(super) async fn run(State(app): State<App>, Path(name): Path<String>) -> Answer {
    let run = find(&app, &name).await?;
    shown(&app, run).await
}

pub(super) async fn runs(State(app): State<App>) -> Answer {
    let runs = app.driver.runs().await?;
    let runs: Vec<_> = runs.iter().map(message::run).collect();
    let runs: Vec<_> = runs.iter().map(run_json).collect();
    Ok(Json(json!({ "runs": runs })))
}

pub(super) async fn workers(State(app): State<App>) -> Answer {
    let workers = app.driver.workers().await?;
    let named = workers.iter().take(message::NAMED_WORKERS);
    let workers: Vec<_> = named.map(message::worker).collect();
    let workers: Vec<_> = workers.iter().map(worker_json).collect();
    Ok(Json(json!({ "workers": workers })))
}

pub(super) async fn pause(app: State<App>, run: Path<String>) -> Answer {
    control(app, run, Command::Pause).await
}

pub(super) async fn resume(app: State<App>, run: Path<String>) -> Answer {
    control(app, run, Command::Resume).await
}

pub(super) async fn cancel(app: State<App>, run: Path<String>) -> Answer {
    control(app, run, Command::Cancel).await
}

pub(super) async fn retry(app: State<App>, run: Path<String>) -> Answer {
    control(app, run, Command::Unpark).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecheckRequest {
    pub(super) recheck: String,
}

pub(super) async fn recheck(
    app: State<App>,
    run: Path<String>,
    request: Result<Json<RecheckRequest>, JsonRejection>,
) -> Answer {
    let Json(request) = request.map_err(|bad| Refusal::new(bad.status(), bad.body_text()))?;
    let part: Recheck = request.recheck.parse().map_err(|bad| {
        let message = format!("recheck: {bad}");
        Refusal::new(StatusCode::BAD_REQUEST, message)
    })?;
    control(app, run, Command::Recheck(part)).await
}

pub(super) async fn delete(State(app): State<App>, Path(name): Path<String>) -> Answer {
    let run = find(&app, &name).await?;
    let run = app.driver.delete(run).await?;
    Ok(Json(summary(&run)))
}

async fn control(State(app): State<App>, Path(name): Path<String>, command: Command) -> Answer {
    let run = find(&app, &name).await?;
    let run = app.driver.control(run, command).await?;
    Ok(Json(summary(&run)))
}

pub(super) fn summary(run: &RunSummary) -> Value {
    run_json(&message::run(run))
}

async fn shown(app: &App, run: RunId) -> Answer {
    let status = status_of(app, run).await?;
    let shown = status_json(&status);
    let shown = shown
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")))?;
    Ok(Json(shown))
}

/// The status of a run that is there.
pub(super) async fn status_of(
    app: &App,
    run: RunId,
) -> Result<std::sync::Arc<v1::Status>, Refusal> {
    let status = app.statuses.get(run).await?;
    status.ok_or_else(|| no_run(run))
}

/// The run that is served first; where none is, the one created last.
pub(super) async fn first(app: &App) -> Result<RunId, Refusal> {
    let status = app.driver.status(None).await?;
    let status = status.ok_or_else(|| {
        let none = "there are no runs; start one with `queensctl submit`";
        Refusal::new(StatusCode::NOT_FOUND, none)
    })?;
    Ok(status.status.manifest.run)
}

/// The run that a name means: the first of its digits, or "last".
pub(super) async fn find(app: &App, name: &str) -> Result<RunId, Refusal> {
    let parsed: RunName = name
        .parse()
        .map_err(|bad| Refusal::new(StatusCode::BAD_REQUEST, format!("{bad}")))?;
    let runs = app.driver.runs().await?;
    let created = |run: &RunSummary| (run.manifest.created_unix_ms, run.manifest.run);
    let created: Vec<_> = runs.iter().map(created).collect();
    parsed
        .among(&created)
        .map_err(|error| Refusal::new(StatusCode::NOT_FOUND, error.to_string()))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    first: Option<u64>,
    tasks: Option<u64>,
}

/// A part of the task map, in no more cells than the whole has.
pub(super) async fn map(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(part): Query<Part>,
) -> Answer {
    let run = find(&app, &name).await?;
    if part.first.is_none() && part.tasks.is_none() {
        let map = app.live.whole_map(run).await?;
        return map.map(Json).ok_or_else(|| no_run(run));
    }
    let first = part.first.unwrap_or(0);
    let end = first.saturating_add(part.tasks.unwrap_or(u64::MAX));
    let map = app.driver.task_map(run, first..end, MAP_CELLS).await?;
    let map = map.ok_or_else(|| no_run(run))?;
    Ok(Json(map_json(&map)))
}

/// The tasks by what their units have in common, or a part of them.
pub(super) async fn grid(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(window): Query<Window>,
) -> Answer {
    let run = find(&app, &name).await?;
    let grid = match window.is_whole() {
        true => app.live.whole_grid(run).await?,
        false => app.live.grid(run, window).await?,
    };
    grid.map(Json).ok_or_else(|| {
        let what = format!("run {run} has no such sheet; /api/v1/runs/{run}/grid lists them");
        Refusal::new(StatusCode::NOT_FOUND, what)
    })
}

pub(super) async fn task(
    State(app): State<App>,
    Path((name, task)): Path<(String, u64)>,
) -> Answer {
    let run = find(&app, &name).await?;
    let view = app.driver.task(run, TaskId(task)).await?;
    let view = view.ok_or_else(|| {
        let what = format!("run {run} has no task {task}");
        Refusal::new(StatusCode::NOT_FOUND, what)
    })?;
    Ok(Json(json!({
        "task": view.task.0,
        "state": view.state,
        "first_unit": view.units.start,
        "units": view.units.end - view.units.start,
        "cost": view.cost,
        "count": view.count.map(|count| count.to_string()),
        "workers": view.workers,
        "failed_attempts": view.failed,
        "contradicting_counts": view.reports.iter().map(u64::to_string).collect::<Vec<_>>(),
    })))
}

/// How a run went since the coordinator started, thinned out.
pub(super) async fn history(State(app): State<App>, Path(name): Path<String>) -> Answer {
    let run = find(&app, &name).await?;
    let status = status_of(&app, run).await?;
    let spec = status.run.as_ref().and_then(|run| run.spec);
    let (reference, source) = reference_value(spec.unwrap_or_default().n);
    let mut history = app.live.history(run).json();
    history["reference"] = json!({ "solutions": reference, "source": source });
    Ok(Json(history))
}

/// A new join string for workers.
pub(super) async fn join(State(app): State<App>) -> Answer {
    let Some(keys) = app.gate.keys() else {
        let what = "this coordinator asks nobody for a token: give workers its address, with --coordinator";
        return Err(Refusal::new(StatusCode::CONFLICT, what));
    };
    let name = format!("page-{:08x}", rand::random::<u32>());
    let made = spawn_blocking(move || {
        keys.create((Role::Worker, &name), None)
            .map(|join| (join, name))
    });
    let failed = |error: String| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error);
    let (join, name) = made
        .await
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(error.to_string()))?;
    Ok(Json(json!({ "name": name, "join": join.expose() })))
}

fn no_run(run: RunId) -> Refusal {
    let message = format!("there is no run {run}; /api/v1/runs lists them");
    Refusal::new(StatusCode::NOT_FOUND, message)
}
