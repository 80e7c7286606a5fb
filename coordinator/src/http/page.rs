//! The page of a run: state, progress, ETA and alerts first, details below.

use axum::{
    body::Body,
    extract::{Path, Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use common::{messages::run::RunId, method::Method};
use maud::{Markup, html};
use proto::v1::{self, CheckOutcome, Published, RunState};
use view::{
    AlertKind, RunView, grouped, run_of,
    text::{check_name, check_outcome},
};

use super::{
    App, api,
    guard::{EVENT_STREAM, Refusal},
    layout::{dialog, figure, page, page_with},
    lists, machines,
    map::BoardDrawing,
    sessions::Reader,
};

/// Name, content type and text of the pages' files.
const ASSETS: [(&str, &str, &str); 9] = [
    ("app.js", "text/javascript; charset=utf-8", include_str!("assets/app.js")),
    ("grid.js", "text/javascript; charset=utf-8", include_str!("assets/grid.js")),
    ("charts.js", "text/javascript; charset=utf-8", include_str!("assets/charts.js")),
    ("count.js", "text/javascript; charset=utf-8", include_str!("assets/count.js")),
    ("counter.js", "text/javascript; charset=utf-8", include_str!("assets/counter.js")),
    ("app.css", "text/css; charset=utf-8", include_str!("assets/app.css")),
    ("uplot.js", "text/javascript; charset=utf-8", include_str!("assets/uplot.js")),
    ("uplot.css", "text/css; charset=utf-8", include_str!("assets/uplot.css")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let asset = ASSETS.iter().find(|(known, ..)| *known == name);
    let Some((_, kind, text)) = asset else {
        return Refusal::not_found(format!("file {name} not found")).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, *kind),
        // Short, because another version of the program has other files.
        (header::CACHE_CONTROL, "max-age=300"),
    ];
    (headers, *text).into_response()
}

/// Answers with the page of the run that is served first.
pub(super) async fn home(State(app): State<App>, request: Request) -> Result<Response, Refusal> {
    let reader = Reader::of(&app, &request);
    match api::first(&app).await {
        Ok(run) => show(&app, run, &reader).await,
        Err(refusal) if refusal.code == StatusCode::NOT_FOUND => {
            let body = html! {
                body data-waits="yes" {
                    header { div.title { h1 { "No runs yet" } } }
                    main id="main" {
                        @if reader.operator { (join(true)) (lists::submit(true)) }
                        @else { section { p { "Start one with " code { "queensctl submit --n 16" } "." } } }
                    }
                }
            };
            Ok(page("queens", &body).into_response())
        }
        Err(refusal) => Err(refusal),
    }
}

pub(super) async fn run(
    State(app): State<App>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let run = api::find(&app, &name).await?;
    show(&app, run, &Reader::of(&app, &request)).await
}

/// Answers with server-sent events about a run.
pub(super) async fn updates(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let run = api::find(&app, &name).await?;
    let kind = HeaderValue::from_static(EVENT_STREAM);
    let body = Body::from_stream(app.broadcast.follow(run));
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Letters and names of the task states in the legend of the map.
const STATES: [(&str, &str); 8] = [
    ("w", "pending"),
    ("l", "counting"),
    ("d", "partially done"),
    ("D", "done"),
    ("c", "partially confirmed"),
    ("C", "confirmed"),
    ("p", "parked"),
    ("x", "disputed"),
];

async fn show(app: &App, run: RunId, reader: &Reader) -> Result<Response, Refusal> {
    let view = app.broadcast.view_with_shares(run).await?;
    let view = view.ok_or_else(|| Refusal::not_found(format!("run {run} not found")))?;
    let status = api::status_of(app, run).await?;
    let method = status.run.as_ref().and_then(|run| run_of(run).ok());
    let method = method.map_or(Method::Frames, |run| run.layout.method());
    let board = app.broadcast.board(run).await?;
    let runs = app.driver.runs().await?;
    let events = lists::newest_events(app, run).await?;
    let board_of = &view.figures.board.short;
    let title = match &status.result {
        Some(result) if result.disputed_tasks.is_empty() => {
            format!("{board_of}: {} solutions", grouped(&result.solutions))
        }
        _ => format!("{board_of} · {}", view.figures.percent.short),
    };
    let operator = reader.operator;
    // Without machines, adding one comes first.
    let is_alone = view.alerts.iter().any(|alert| alert.kind == AlertKind::NoWorkers);
    let body = html! {
        body data-run=(run) data-operator=[operator.then_some("yes")] {
            a.skip href="#main" { "Skip to main content" }
            (headline(&view, run, operator))
            main id="main" {
                @if operator && is_alone { (join(true)) }
                @if let Some(result) = &status.result { (total(result, &view, run, app.storage.directory.is_some())) }
                (figures(&view))
                div.pair {
                    (task_board(board.as_deref(), method, run))
                    (task_map(&view, method))
                }
                (charts())
                (machines::section(&view, operator))
                (verification(&view, status.result.as_ref()))
                (events)
                (lists::newest_runs(&runs, run, operator))
                @if operator { div.pair.even { (lists::submit(false)) @if !is_alone { (join(false)) } } }
            }
            (dialog())
            footer {
                p { "Leader: " span data-figure="leader" { (view.figures.leader.short) } }
                p { a href=(format!("/runs/{run}/credits")) { "Credits" } " · " a href="/api/v1/openapi.json" { "JSON interface" } " · " a href="/metrics" { "Metrics" } }
                @if reader.logged_in {
                    form method="post" action="/logout" { button type="submit" { "Log out" } }
                }
            }
        }
    };
    let about = match &status.result {
        Some(result) if result.disputed_tasks.is_empty() => {
            format!("Counted in {}; {}", view.figures.eta.short, view.figures.verification.short)
        }
        _ => format!("{}; {}", view.state, view.figures.tasks.short),
    };
    let head = html! {
        meta name="description" content=(about);
        meta property="og:title" content=(title);
        meta property="og:description" content=(about);
        meta property="og:image" content=(format!("{}/runs/{run}/preview.png", reader.origin));
    };
    Ok(page_with(&title, &head, &body).into_response())
}

/// Returns the header of a run's page: state, progress and alerts.
fn headline(view: &RunView, run: RunId, operator: bool) -> Markup {
    html! {
        header {
            div.title {
                h1 { span data-figure="board" { (view.figures.board.short) } " queens" }
                span.badge id="state" data-state=(view.state) data-figure="state" { (view.state) }
                span.sub data-figure="method" { (view.figures.method.short) }
                span id="link" role="status" {}
                @if operator { span.commands.scripted {
                    (lists::commands(run, &view.figures.board.short, view.state))
                } }
            }
            div.bar {
                progress id="bar" max="1" value=(view.fraction) aria-label="Part of the work done" {}
                strong data-figure="percent" { (view.figures.percent.short) }
            }
            section.alerts id="alerts" data-alarm=(view.alarm) aria-label="Alerts" hidden[view.alerts.is_empty()] {
                ul id="alert-list" aria-live="polite" { @for alert in &view.alerts { li { (alert.text) } } }
            }
        }
    }
}

fn figures(view: &RunView) -> Markup {
    let [from, to] = view.expected_ms.map_or([None, None], |range| range.map(Some));
    let of = &view.figures;
    html! {
        dl.figures {
            div {
                dt data-figure="eta-label" { (of.eta_label.short) }
                dd { strong data-figure="eta" { (of.eta.short) }
                    span id="eta-at" data-from=[from] data-to=[to] { (of.eta_at.short) } }
            }
            div {
                dt data-figure="solutions-label" { (of.solutions_label.short) }
                dd { strong { (figure("solutions", &of.solutions)) } (figure("estimate", &of.estimate)) (figure("reference", &of.reference)) }
            }
            div {
                dt data-figure="rate-label" { (of.rate_label.short) }
                dd { strong { (figure("rate", &of.rate)) }
                    svg.spark.scripted viewBox="0 -1 120 26" preserveAspectRatio="none" role="img"
                        aria-label="Rate in the last hour" { polyline id="recent-rate" {} }
                }
            }
            div {
                dt { "Machines" }
                dd { strong data-figure="machines" { (of.machines.short) } span data-figure="threads" { (of.threads.short) } }
            }
            div {
                dt { "Verification" }
                dd { span.why id="verification" data-verification=(view.verification) data-figure="verification" {
                    (of.verification.short)
                } }
            }
        }
    }
}

fn task_board(board: Option<&BoardDrawing>, method: Method, run: RunId) -> Markup {
    html! {
        section.board aria-labelledby="board-h" {
            div.head {
                h2 id="board-h" { "A solution" }
                button.scripted type="button" id="board-pause" aria-label="Stop changing the board" { "❚❚" }
            }
            details id="board-details" hidden[board.is_none()] {
                summary {
                    @match board {
                        Some(board) => { (board.markup()) },
                        None => { span id="board" {} span id="board-caption" {} },
                    }
                }
                p {
                    @match method {
                        Method::Frames => {
                            "A task is a range of frames. A frame fixes which columns the queens in the top
                            left quadrant occupy (A, marked) and which those in the bottom right quadrant occupy (C,
                            marked); the other columns are left to the other two quadrants. A worker counts all solutions of a
                            frame at once, by joining lists of half boards; the board shows one of these solutions. "
                        },
                        Method::Rows => {
                            "A task is a range of prefixes. A prefix places the first queens, which are marked. A
                            worker counts all ways to place the others, row by row; the board shows one of these ways. "
                        },
                    }
                    a id="board-task" href=[board.map(|board| board.task_path(run))] { "Explain this task" }
                }
            }
        }
    }
}

fn task_map(view: &RunView, method: Method) -> Markup {
    let group = match method {
        Method::Frames => "Group by frame",
        Method::Rows => "Group by prefix",
    };
    html! {
        section.tasks aria-labelledby="map-h" {
            div.head {
                h2 id="map-h" { "Tasks" }
                p data-figure="tasks" { (view.figures.tasks.short) }
            }
            div.map-bar.scripted {
                button type="button" id="map-out" disabled { "Zoom out" }
                button type="button" id="map-view" data-group=(group) { "Show in task order" }
                span.sub id="map-where" {}
            }
            canvas.scripted id="map" tabindex="0" role="img"
                aria-label="Map of all tasks; arrow keys move, Enter zooms in" {}
            ul.legend { @for (letter, state) in STATES { li { span.key data-k=(letter) {} (state) } } }
            p.scripted id="map-cell" aria-live="polite" { "Click a task for its count, worker, time and rechecks." }
        }
    }
}

fn charts() -> Markup {
    html! {
        section.charts id="charts" aria-labelledby="charts-h" hidden {
            div.head {
                h2 id="charts-h" { "History" }
                div.choice role="group" aria-label="Period" {
                    button type="button" data-span="0" aria-pressed="true" { "Whole run" }
                    button type="button" data-span="3600" aria-pressed="false" { "Last hour" }
                }
            }
            div.pair.three {
                figure { figcaption id="chart-estimate-h" { "Estimated total" }
                    div.chart id="chart-estimate" role="img" aria-labelledby="chart-estimate-h" {} }
                figure { figcaption { "Solutions per second, by machine" }
                    div.chart id="chart-rate" role="img" aria-label="Solutions per second over time" {}
                    ul.keys id="chart-rate-legend" {} }
                figure.wide { figcaption { "Connected workers" }
                    div.chart id="chart-workers" role="img" aria-label="Connected workers over time" {} }
            }
        }
    }
}

fn total(result: &v1::Result, view: &RunView, run: RunId, has_files: bool) -> Markup {
    let file = format!("n{}.json", view.figures.board.short.trim_start_matches("N = "));
    let counts = format!("{file}.counts");
    html! {
        section.result aria-labelledby="result-h" {
            @if result.disputed_tasks.is_empty() {
                div.head {
                    h2 id="result-h" { "Result" }
                    button.scripted type="button" id="result-copy" { "Copy" }
                }
                p.number id="result" { (grouped(&result.solutions)) }
                dl {
                    @if !result.fundamental.is_empty() {
                        div { dt { "Fundamental solutions" } dd { (grouped(&result.fundamental)) } }
                        div { dt { "Asymmetric" } dd { (grouped(&result.asymmetric)) } }
                        div { dt { "Half-turn" } dd { (grouped(&result.half_turn)) } }
                        div { dt { "Quarter-turn" } dd { (grouped(&result.quarter_turn)) } }
                    }
                    div { dt { "Published count" } dd { @match result.published() {
                        Published::Matches => "matches",
                        Published::Differs => "MISMATCH",
                        Published::None | Published::Unspecified => "none published",
                    } } }
                }
                @if view.state == RunState::Complete { p.sub {
                    "Certificate: "
                    @if has_files {
                        a href=(format!("/runs/{run}/certificate.json")) download=(file) { (file) } " and "
                        a href=(format!("/runs/{run}/certificate.json.counts")) download=(counts) { (counts) }
                    } @else {
                        code { "queensctl copy @FILE DIR" } " and " code { "queensctl certify DIR --run " (run) " --out " (file) }
                    }
                    ". Anyone can check it: " code { "queensctl audit " (file) " --tasks 20" }
                } }
            } @else {
                h2 id="result-h" { "Disputed: no total" }
                dl { div { dt { "Partial sum (disputed tasks excluded)" } dd.number { (grouped(&result.solutions)) } } }
            }
        }
    }
}

/// Returns a line per check, with its reason on demand.
fn verification(view: &RunView, result: Option<&v1::Result>) -> Markup {
    html! {
        section.checks aria-labelledby="checks-h" {
            h2 id="checks-h" { "Verification" }
            @for check in result.iter().flat_map(|result| &result.checks) {
                @let outcome = check.outcome();
                @let mark = match outcome {
                    CheckOutcome::Passed => "✓",
                    CheckOutcome::Failed => "✗",
                    CheckOutcome::NotApplicable | CheckOutcome::NotPossible | CheckOutcome::Unspecified => "–",
                };
                details data-outcome=(outcome) {
                    summary { span.mark aria-hidden="true" { (mark) } (check_name(&check.name)) span.outcome { ": " (check_outcome(&outcome.to_string())) } }
                    p { (check.reason) }
                }
            }
            @if result.is_none() { p data-figure="rechecks" { (view.figures.rechecks.short) } }
        }
    }
}

fn join(open: bool) -> Markup {
    html! {
        section.scripted aria-labelledby="join-h" { details open[open] {
            summary { h2 id="join-h" { "Add a machine" } }
            form id="join" {
                label { "Role " select name="role" {
                    option value="worker" { "worker" } option value="viewer" { "viewer" }
                    option value="operator" { "operator" }
                } }
                label { "Name " input name="name" maxlength="64" pattern="[A-Za-z0-9._\\-]+" placeholder="any" autocomplete="off"; }
                label { "Valid for " input type="number" name="days" value="30" min="1" max="3650" required; " days" }
                button type="submit" { "Create join command" }
            }
            p id="join-what" hidden { "Run this command on the new machine. It stays valid until its token is revoked or expires:" }
            p id="joined" hidden { output id="join-line" {} " " button type="button" id="join-copy" { "Copy" } }
        } }
    }
}
