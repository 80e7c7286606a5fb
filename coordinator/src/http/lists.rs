//! Lists of runs and events: the newest on each run's page, all on separate pages.

use std::collections::BTreeSet;

use axum::{
    Json,
    extract::{Path, Request, State},
    response::{IntoResponse as _, Response},
};
use common::{board::Board, messages::run::RunId};
use maud::{Markup, html};
use proto::v1::{self, RunState};
use scheduler::RunSummary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use view::{
    CREDIT_COLUMNS, RUN_COLUMNS, credit_row, event_subject, event_text,
    json::Event,
    listed, run_row,
    text::{minute, plural},
};

use super::{
    App, api,
    guard::{Query, Refusal},
    layout::{self, Command, buttons},
    sessions::Reader,
};
use crate::{driver::RunEvent, message};

/// Maximum numbers of runs and events on the page of a run.
const MAX_NEWEST_RUNS: usize = 8;
const MAX_NEWEST_EVENTS: usize = 6;

/// Maximum number of runs or events on a page that lists all.
const MAX_LISTED: usize = 500;

const COMMANDS: [Command<RunState>; 3] = [
    Command { name: "pause", states: &[RunState::Running], verb: "Pause", question: None },
    Command { name: "resume", states: &[RunState::Paused], verb: "Resume", question: None },
    Command {
        name: "cancel",
        states: &[RunState::Running, RunState::Paused],
        verb: "Cancel",
        question: Some(["Its results are kept, but it cannot be continued.", "Keep counting"]),
    },
];

/// A query that selects runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Text that at least one cell of the run contains.
    #[serde(default)]
    text: String,
    /// Whether to include cancelled runs; any value does.
    all: Option<String>,
}

/// Answers with the page of all runs.
pub(super) async fn runs(
    State(app): State<App>,
    Query(filter): Query<Filter>,
    request: Request,
) -> Result<Response, Refusal> {
    let operator = Reader::of(&app, &request).operator;
    let runs = app.driver.runs().await?.iter().map(message::run).collect();
    let mut runs = listed(runs, filter.all.is_some());
    let wanted = filter.text.to_lowercase();
    runs.retain(|run| run_row(run, true).iter().any(|cell| cell.to_lowercase().contains(&wanted)));
    let number = runs.len();
    runs.truncate(MAX_LISTED);
    let body = html! {
        body {
            header { div.title { h1 { "Runs" } a href="/" { "Back to the dashboard" } } }
            main id="main" {
                section.runs aria-labelledby="runs-h" {
                    div.head {
                        h2 id="runs-h" { @if number > MAX_LISTED { (MAX_LISTED) " of " } (number) " listed" }
                        form id="filter" method="get" action="/runs" role="search" {
                            label { "Filter " input type="search" name="text" value=(filter.text); }
                            label { input type="checkbox" name="all" checked[filter.all.is_some()]; " cancelled runs" }
                            button type="submit" { "Apply" }
                        }
                    }
                    (table(&runs, None, operator))
                    p id="command-result" role="status" {}
                }
                @if operator { (submit(true)) }
            }
            (layout::dialog())
        }
    };
    Ok(layout::page("queens: runs", &body).into_response())
}

/// Returns the section of a run's page that lists the newest runs.
pub(super) fn newest_runs(runs: &[RunSummary], shown: RunId, operator: bool) -> Markup {
    let mut runs = listed(runs.iter().map(message::run).collect(), false);
    let all = runs.len();
    runs.truncate(MAX_NEWEST_RUNS);
    html! {
        section.runs aria-labelledby="runs-h" {
            div.head {
                h2 id="runs-h" { "Runs" }
                a href="/runs" { "View all runs" @if all > MAX_NEWEST_RUNS { " (" (all) ")" } }
            }
            div.run-list { (table(&runs, Some(shown), operator)) }
            p id="command-result" role="status" {}
        }
    }
}

fn table(runs: &[v1::Run], shown: Option<RunId>, operator: bool) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of runs" {
            table.stacked {
                thead { tr {
                    @for column in RUN_COLUMNS { th scope="col" { (column.head) } }
                    @if operator { th.scripted scope="col" { "Commands" } }
                } }
                tbody { @for run in runs {
                    @let id = RunId(run.run);
                    tr data-run-of-list=(id) {
                        @for (place, (column, cell)) in RUN_COLUMNS.iter().zip(run_row(run, false)).enumerate() {
                            td data-head=(column.head) data-cell=[(place == 3).then_some("state")] {
                                @if place == 0 {
                                    a href=(format!("/runs/{id}")) aria-current=[(Some(id) == shown).then_some("page")] { (cell) }
                                } @else if place == 5 { time data-ms=(run.created_unix_ms) { (cell) " UTC" } }
                                @else if place == 9 && operator && matches!(run.state(), RunState::Running | RunState::Paused) {
                                    input.scripted type="number" value=(cell) data-priority=(format!("/api/v1/runs/{id}/priority"))
                                        aria-label=(format!("Priority of run {}", id.short()));
                                    noscript { (cell) }
                                }
                                @else { (cell) }
                            }
                        }
                        @if operator {
                            td.scripted { @if Some(id) != shown {
                                (commands(id, &format!("N = {}", run.spec.unwrap_or_default().n), run.state()))
                            } }
                        }
                    }
                } }
            }
        }
    }
}

/// Answers with the page of a run's contributors.
pub(super) async fn credits(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let run = api::find(&app, &name).await?;
    let credits = api::credits_of(&app, run).await?;
    let status = api::status_of(&app, run).await?;
    let is_complete = status.run.as_ref().is_some_and(|run| run.state() == RunState::Complete);
    let has_certificate = is_complete && app.storage.directory.is_some();
    let n = status.run.as_ref().and_then(|run| run.spec).unwrap_or_default().n;
    let certificate = format!("/runs/{run}/certificate.json");
    let title = format!("N = {n}: credits");
    let body = html! {
        body {
            header { div.title { h1 { (title) } a href=(format!("/runs/{run}")) { "Back to the run" } } }
            main id="main" {
                section aria-labelledby="credits-h" {
                    h2 id="credits-h" {
                        (plural(credits.len(), "contributor"))
                        @if credits.len() > MAX_LISTED { ", the first " (MAX_LISTED) " listed" }
                    }
                    p { "From the records of the journal: tasks whose count stands, the solutions in them, and tasks in which
                        the contributor's count and another one agree." }
                    div.scroll tabindex="0" role="region" aria-label="Table of contributors" {
                        table.stacked {
                            thead { tr {
                                @for column in CREDIT_COLUMNS { th scope="col" { (column.head) } }
                                @if has_certificate { th scope="col" { "Certificate" } }
                            } }
                            tbody { @for credit in credits.iter().take(MAX_LISTED) { tr {
                                @for (column, cell) in CREDIT_COLUMNS.iter().zip(credit_row(credit)) {
                                    td data-head=(column.head) { (cell) }
                                }
                                @if has_certificate { td data-head="Certificate" { @if credit.tasks > 0 {
                                    form method="get" action=(format!("{certificate}.counts")) {
                                        input type="hidden" name="contributor" value=(credit.contributor);
                                        button type="submit" aria-label=(format!("Counts of {}", credit.contributor)) { "Counts" }
                                    }
                                } } }
                            } } }
                        }
                    }
                    @if has_certificate { p.sub {
                        "A personal certificate is " a href=(certificate) download { "certificate.json" }
                        " with the counts of one contributor only. Anyone can check it: " code { "queensctl audit certificate.json" }
                    } }
                }
            }
        }
    };
    Ok(layout::page(&title, &body).into_response())
}

/// Returns an operator's buttons for a run in this state.
pub(super) fn commands(run: RunId, what: &str, state: RunState) -> Markup {
    let (path, what) = (format!("/api/v1/runs/{run}"), format!("run {what}"));
    buttons(&COMMANDS, &path, &what, Some(state), Some(&run.confirmation()))
}

/// Returns the form that starts a run.
pub(super) fn submit(open: bool) -> Markup {
    html! {
        section aria-labelledby="submit-h" { details open[open] {
            summary { h2 id="submit-h" { "Start a run" } }
            p { "On a command line: " code id="submit-line" { "queensctl submit --n 16" } }
            p.scripted.sub id="submit-cost" {}
            form.scripted id="submit" {
                label { "N = " input type="number" name="n" value="16" min="1" max=(Board::MAX) required; }
                label { "Method " select name="method" {
                    @for method in ["auto", "frames", "rows"] { option { (method) } }
                } }
                label { "Recheck " select name="recheck" {
                    @for (value, text) in [("auto", "auto"), ("0.1", "10 %"), ("all", "all")] {
                        option value=(value) { (text) }
                    }
                } }
                label { "Priority " input type="number" name="priority" value="0" required; }
                button type="submit" { "Start run" }
                button type="button" id="submit-again" hidden { "Start another run" }
                span id="submitted" role="status" {}
            }
        } }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventQuery {
    /// A run: four digits of its id, N=22 or last; all runs and the cluster if absent.
    run: Option<String>,
    /// Events with a higher sequence number only.
    #[serde(default)]
    after: u64,
    /// Kinds of events, separated by commas; all if empty.
    #[serde(default)]
    kind: String,
}

impl EventQuery {
    async fn find(&self, app: &App) -> Result<Vec<RunEvent>, Refusal> {
        let run = match &self.run {
            Some(name) => Some(api::find(app, name).await?),
            None => None,
        };
        let mut events = app.driver.events(run, self.after).await?;
        let is_wanted = |kind: &str| self.kind.split(',').any(|wanted| wanted == kind);
        events.retain(|(_, event)| self.kind.is_empty() || is_wanted(&event.kind));
        Ok(events)
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Events {
    events: Vec<Event>,
}

/// Answers with events as JSON, oldest first.
pub(super) async fn events_json(
    State(app): State<App>,
    Query(query): Query<EventQuery>,
) -> Result<Json<Events>, Refusal> {
    let events = query.find(&app).await?;
    let event = |event: &RunEvent| Event::from(&message::event(event));
    Ok(Json(Events { events: events.iter().map(event).collect() }))
}

/// Answers with the page of all events, newest first.
pub(super) async fn events(
    State(app): State<App>,
    Query(query): Query<EventQuery>,
) -> Result<Response, Refusal> {
    let events = query.find(&app).await?;
    let all = app.driver.events(None, 0).await?;
    let kinds: BTreeSet<_> = all.iter().map(|(_, event)| event.kind.as_str()).collect();
    let body = html! {
        body {
            header { div.title { h1 { "Events" } a href="/" { "Back to the dashboard" } } }
            main id="main" {
                section aria-labelledby="events-h" {
                    div.head {
                        h2 id="events-h" {
                            (plural(events.len(), "event"))
                            @if events.len() > MAX_LISTED { ", the last " (MAX_LISTED) " listed" }
                        }
                        form method="get" action="/events" role="search" {
                            label { "Kind " select name="kind" {
                                option value="" { "all" }
                                @for kind in kinds { option selected[query.kind == kind] { (kind) } }
                            } }
                            @if let Some(run) = &query.run { input type="hidden" name="run" value=(run); }
                            " " button type="submit" { "Apply" }
                        }
                    }
                    (event_list(events.iter().rev().take(MAX_LISTED)))
                }
            }
        }
    };
    Ok(layout::page("queens: events", &body).into_response())
}

/// Returns the section of a run's page with its newest events and the cluster's.
pub(super) async fn newest_events(app: &App, run: RunId) -> Result<Markup, Refusal> {
    let events = app.driver.events(None, 0).await?;
    let about = |event: &&RunEvent| event.0.is_none_or(|of| of == run);
    Ok(html! {
        section.events aria-labelledby="events-h" {
            div.head { h2 id="events-h" { "Events" } a href="/events" { "View all events" } }
            div id="events" { (event_list(events.iter().rev().filter(about).take(MAX_NEWEST_EVENTS))) }
        }
    })
}

fn event_list<'a>(events: impl Iterator<Item = &'a RunEvent>) -> Markup {
    html! {
        ul.log { @for event in events {
            @let event = message::event(event);
            li data-kind=(event.kind) {
                time data-ms=(event.unix_ms) { (minute(event.unix_ms, true)) " UTC" } " "
                @match event.run {
                    Some(run) => a href=(format!("/runs/{}", RunId(run))) { (event_subject(&event)) },
                    None => span { (event_subject(&event)) },
                }
                " " (event_text(&event))
            }
        } }
    }
}
