//! The pages: what is said of a run, for people. They work without scripts; with them they change as
//! the run does.

use axum::{
    Form,
    body::Body,
    extract::{Path, Query, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use common::run::RunId;
use maud::{DOCTYPE, Markup, html};
use proto::door::{JoinString, Token, TokenId};
use serde::Deserialize;

use super::{api, error::Refusal, server::App};
use crate::{
    doors::{Access, Peer, Principal, Proof, Role},
    render::{Facts, SHOWN_WORKERS, WORKER_HEADS, message, run_of, state, worker_rows},
    sched::RunSummary,
    text::thousands,
};

/// The cookie that holds a session.
pub(super) const COOKIE: &str = "queens-session";

/// Files of the pages, in the program itself.
const ASSETS: [(&str, &str, &str); 6] = [
    (
        "app.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/app.js"),
    ),
    (
        "grid.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/grid.js"),
    ),
    (
        "app.css",
        "text/css; charset=utf-8",
        include_str!("assets/app.css"),
    ),
    (
        "uplot.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/uplot.js"),
    ),
    (
        "uplot.css",
        "text/css; charset=utf-8",
        include_str!("assets/uplot.css"),
    ),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    let Some((_, kind, text)) = found else {
        let what = format!("there is no file {name}");
        return Refusal::new(StatusCode::NOT_FOUND, what).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, *kind),
        // Another version of the program has other files: asked for again after a while.
        (header::CACHE_CONTROL, "max-age=300"),
    ];
    (headers, *text).into_response()
}

fn page(title: &str, body: &Markup) -> Html<String> {
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="/assets/icon.svg";
                link rel="stylesheet" href="/assets/uplot.css";
                link rel="stylesheet" href="/assets/app.css";
                script defer src="/assets/uplot.js" {}
                script defer src="/assets/grid.js" {}
                script defer src="/assets/app.js" {}
            }
            (body)
        }
    };
    Html(whole.into_string())
}

/// The run that is served first.
pub(super) async fn home(State(app): State<App>, request: Request) -> Result<Response, Refusal> {
    let operator = is_operator(&request);
    match api::first(&app).await {
        Ok(run) => show(&app, run, operator).await,
        Err(refusal) if refusal.code == StatusCode::NOT_FOUND => {
            let body = html! { body data-waits="yes" { main { h1 { "No runs" } p { (refusal.message) } } } };
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
    show(&app, run, is_operator(&request)).await
}

fn is_operator(request: &Request) -> bool {
    match request.extensions().get::<Principal>() {
        Some(Principal::Token { role, .. } | Principal::Certificate { role, .. }) => {
            *role == Role::Operator
        }
        Some(Principal::Loopback | Principal::Anybody) => true,
        None => false,
    }
}

async fn show(app: &App, run: RunId, operator: bool) -> Result<Response, Refusal> {
    let facts = app.live.look(run).await?.ok_or_else(|| {
        let what = format!("there is no run {run}");
        Refusal::new(StatusCode::NOT_FOUND, what)
    })?;
    let status = api::status_of(app, run).await?;
    let runs = app.driver.runs().await?;
    let title = format!("{} · {}", facts.word("what"), facts.word("percent"));
    let body = html! {
        body data-run=(run) data-operator=[operator.then_some("yes")] {
            a.skip href="#main" { "To the run" }
            (headline(&facts))
            main id="main" {
                @if let Some(result) = &status.result { (result_section(result)) }
                (numbers(&facts))
                section aria-labelledby="map-h" {
                    h2 id="map-h" { "Tasks" }
                    p data-w="tasks" { (facts.word("tasks")) }
                    div.map-bar {
                        button type="button" id="map-out" disabled { "Whole run" }
                        button type="button" id="map-view" { "In their order" }
                        span id="map-where" {}
                    }
                    canvas id="map" tabindex="0" role="img"
                        aria-label="Map of all tasks; arrow keys move, Enter looks closer" {}
                    p id="map-cell" aria-live="polite" {}
                    ul.legend {
                        @for (class, what) in [
                            ("w", "waiting"), ("l", "leased"), ("d", "partly done"), ("D", "done"),
                            ("C", "confirmed"), ("p", "set aside"), ("x", "in dispute"),
                        ] { li { span.key data-k=(class) {} (what) } }
                    }
                }
                (workers_section(&facts))
                (all_runs(&runs, run, operator))
                @if operator { (join()) }
            }
            footer {
                p data-w="led-by" { (facts.word("led-by")) }
                a href="/api/v1/openapi.json" { "JSON interface" } " · "
                a href="/metrics" { "metrics" }
                form method="post" action="/logout" { button type="submit" { "Log out" } }
            }
        }
    };
    Ok(page(&title, &body).into_response())
}

/// What a phone shows first.
fn headline(facts: &Facts) -> Markup {
    html! {
        header {
            h1 { span data-w="what" { (facts.word("what")) } " queens" }
            p.sub data-w="method" { (facts.word("method")) }
            p.state { span id="state" data-state=(facts.state) data-w="state" { (facts.state) }
                " " span id="link" role="status" {} }
            div.bar {
                progress id="bar" max="1" value=(facts.fraction) aria-label="Part of the work done" {}
                strong data-w="percent" { (facts.word("percent")) }
            }
            dl {
                dt { "Ends" } dd data-w="ends" { (facts.word("ends")) }
                dt { "To be believed" }
                dd id="belief" data-belief=(facts.belief) data-w="belief" { (facts.word("belief")) }
                dt { "Wrong" }
                dd {
                    ul id="alarms" aria-live="polite" {
                        @for alarm in &facts.alarms { li { (alarm) } }
                        @if facts.alarms.is_empty() { li.none { "nothing" } }
                    }
                }
            }
        }
    }
}

fn numbers(facts: &Facts) -> Markup {
    html! {
        section aria-labelledby="numbers-h" {
            h2 id="numbers-h" { "Solutions" }
            dl {
                dt { "Sum so far" } dd.number data-w="sum" { (facts.word("sum")) }
                dt { "Estimate of all solutions" } dd data-w="estimate" { (facts.word("estimate")) }
                dt { "To compare with" } dd data-w="reference" { (facts.word("reference")) }
            }
            div.chart id="chart-estimate" role="img"
                aria-label="The estimate and its interval over time; its numbers stand above" {}
            h2 { "Speed" }
            p data-w="speed" { (facts.word("speed")) }
            div.chart id="chart-speed" role="img"
                aria-label="Solutions a second over time; the latest number stands above" {}
            h2 { "Second counts" }
            p data-w="rechecks" { (facts.word("rechecks")) }
        }
    }
}

fn result_section(result: &proto::v1::Result) -> Markup {
    let grouped = |text: &str| text.parse().map_or_else(|_| text.to_owned(), thousands);
    html! {
        section.result.wide aria-labelledby="result-h" {
            h2 id="result-h" {
                @if result.disputed_tasks.is_empty() { "Result" } @else { "Disputed: no total" }
            }
            dl {
                dt {
                    @if result.disputed_tasks.is_empty() { "Solutions" }
                    @else { "Sum without the tasks in dispute" }
                }
                dd.number { (grouped(&result.solutions)) }
                @if !result.unique.is_empty() {
                    dt { "Unique" } dd.number { (grouped(&result.unique)) }
                    dt { "Classes: asymmetric, half-turn, quarter-turn" }
                    dd.number {
                        (grouped(&result.asymmetric)) ", " (grouped(&result.half_turn)) ", "
                        (grouped(&result.quarter_turn))
                    }
                }
                @if result.disputed_tasks.is_empty() {
                    dt { "Published count" }
                    dd { @match result.known.as_str() {
                        "matches" => "the same",
                        "differs" => "DIFFERENT",
                        _ => "there is none",
                    } }
                }
            }
            div.scroll tabindex="0" role="region" aria-label="Checks" {
                table {
                    thead { tr { th scope="col" { "Check" } th scope="col" { "Outcome" } th scope="col" { "Of what" } } }
                    tbody { @for check in &result.checks {
                        tr data-outcome=(check.outcome) {
                            th scope="row" { (check.name) }
                            td { (check.outcome.replace('_', " ")) }
                            td { (check.reason) }
                        }
                    } }
                }
            }
        }
    }
}

fn workers_section(facts: &Facts) -> Markup {
    html! {
        section.wide aria-labelledby="workers-h" {
            h2 id="workers-h" { "Workers" }
            p { span data-w="workers" { (facts.word("workers")) } "; " a href="/workers" { "all of them" } }
            (workers_table(&facts.workers))
        }
    }
}

fn workers_table(rows: &[Vec<String>]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Workers" {
            table id="workers" {
                thead { tr { @for head in WORKER_HEADS { th scope="col" { (head) } } } }
                tbody { @for worker in rows {
                    tr data-state=(worker[0]) { @for cell in worker { td { (cell) } } }
                } }
            }
        }
    }
}

/// Which workers a page shows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FromWorker {
    /// How many come before the first of them.
    #[serde(default)]
    from: usize,
}

/// All workers, a page at a time: those in trouble first, then the fastest.
pub(super) async fn workers(
    State(app): State<App>,
    Query(FromWorker { from }): Query<FromWorker>,
) -> Result<Response, Refusal> {
    let workers: Vec<_> = app.driver.workers().await?;
    let workers: Vec<_> = workers.iter().map(message::worker).collect();
    let rows = worker_rows(&workers, from..from.saturating_add(SHOWN_WORKERS));
    let end = from.saturating_add(rows.len());
    let body = html! {
        body {
            header { h1 { "Workers" } p.sub { a href="/" { "To the run" } } }
            main {
                section.wide aria-labelledby="these" {
                    h2 id="these" {
                        @if rows.is_empty() { "None" } @else { (from + 1) " to " (end) " of " (workers.len()) }
                    }
                    (workers_table(&rows))
                    p {
                        @if from > 0 {
                            a href=(format!("/workers?from={}", from.saturating_sub(SHOWN_WORKERS))) { "Those before" } " "
                        }
                        @if end < workers.len() { a href=(format!("/workers?from={end}")) { "Those after" } }
                    }
                }
            }
        }
    };
    Ok(page("queens: workers", &body).into_response())
}

/// What an operator does to a run, and in which states.
const COMMANDS: [(&str, &str); 3] = [
    ("pause", "running"),
    ("resume", "paused"),
    ("cancel", "running paused"),
];

fn all_runs(runs: &[RunSummary], shown: RunId, operator: bool) -> Markup {
    html! {
        section aria-labelledby="runs-h" {
            h2 id="runs-h" { "Runs" }
            ul.runs {
                @for summary in runs {
                    @let message = message::run(summary);
                    @let id = summary.manifest.run;
                    @let known = run_of(&message).ok();
                    @let what = known.map_or_else(String::new, |run| format!("N = {}, {}", run.board, run.layout.method()));
                    @let is = state(message.state());
                    li data-run-of-list=(id) {
                        a href=(format!("/runs/{id}")) aria-current=[(id == shown).then_some("page")] { (what) " · " (id) }
                        " " span { (is) } " "
                        @if operator {
                            @for (word, from) in COMMANDS {
                                button type="button" data-post=(format!("/api/v1/runs/{id}/{word}"))
                                    data-from=(from) hidden[!from.split(' ').any(|state| state == is)]
                                    data-ask=[(word == "cancel").then_some("Give this run up?")]
                                    aria-label=(format!("{word} run {id}")) { (word) }
                                " "
                            }
                        }
                    }
                }
            }
            p id="said" role="status" {}
        }
    }
}

fn join() -> Markup {
    html! {
        section aria-labelledby="join-h" {
            h2 id="join-h" { "Another machine" }
            p { "A new line to paste there, good until its token is revoked:" }
            button type="button" id="join" { "Make a line" }
            p { output id="join-line" {} }
        }
    }
}

/// Whether an address is one that people type, and want to be answered in words.
pub(super) fn is_page(method: &Method, route: &str) -> bool {
    *method == Method::GET && matches!(route, "/" | "/workers" | "/runs/{run}")
}

/// What somebody is shown who may not see a page.
pub(super) fn turned_away(refusal: &Refusal) -> Response {
    if refusal.code == StatusCode::UNAUTHORIZED {
        return Redirect::to("/login").into_response();
    }
    let body = html! { body { main.login { h1 { "queens" } p.error role="alert" { (refusal.message) } } } };
    (refusal.code, page("queens", &body)).into_response()
}

/// Server-sent events about one run.
pub(super) async fn events(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let run = api::find(&app, &name).await?;
    let kind = HeaderValue::from_static("text/event-stream");
    let body = Body::from_stream(app.live.follow(run));
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

fn login_page(message: &str) -> Response {
    let body = html! {
        body {
            main.login {
                h1 { "queens" }
                p { "This coordinator asks who you are: paste a token or a join string of a viewer or an
                    operator, or follow a link that " code { "queensctl dashboard" } " prints." }
                @if !message.is_empty() { p.error role="alert" { (message) } }
                form method="post" action="/login" {
                    label { "Token or join string " input type="password" name="token" required autocomplete="current-password"; }
                    " " button type="submit" { "Look" }
                }
            }
        }
    };
    page("queens: log in", &body).into_response()
}

pub(super) async fn login_form() -> Response {
    login_page("")
}

#[derive(Deserialize)]
pub(super) struct Login {
    token: String,
}

pub(super) async fn login(
    State(app): State<App>,
    axum::Extension(peer): axum::Extension<Peer>,
    Form(login): Form<Login>,
) -> Response {
    let text = login.token.trim();
    let token = match text.parse::<JoinString>() {
        Ok(join) => Ok(join.token().clone()),
        Err(_) => text.parse::<Token>(),
    };
    let Ok(token) = token else {
        return login_page("That is neither a token nor a join string: copy it again, whole.");
    };
    let shown = token.expose();
    let proof = Some(Proof::Bearer(&shown));
    match app.gate.enter(Access::Viewer, Some(&peer), proof) {
        Ok(_) => let_in(&app, peer, token.id()),
        Err(status) => login_page(status.message()),
    }
}

/// A link that `queensctl dashboard` printed.
pub(super) async fn follow(
    State(app): State<App>,
    axum::Extension(peer): axum::Extension<Peer>,
    Path(link): Path<String>,
) -> Response {
    match app.sessions.follow(&link) {
        Some(token) => let_in(&app, peer, token),
        None => login_page(
            "That link was used before, or is too old: `queensctl dashboard` prints another.",
        ),
    }
}

fn let_in(app: &App, peer: Peer, token: TokenId) -> Response {
    let Some(session) = app.sessions.open(token) else {
        return login_page("No session can be opened: the system gives no random numbers.");
    };
    let secure = if peer.tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Lax{secure}");
    let mut response = Redirect::to("/").into_response();
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

pub(super) async fn logout(State(app): State<App>, headers: HeaderMap) -> Response {
    if let Some(session) = session(&headers) {
        app.sessions.close(session);
    }
    let mut response = Redirect::to("/login").into_response();
    let gone =
        HeaderValue::from_static("queens-session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
    response.headers_mut().insert(header::SET_COOKIE, gone);
    response
}

/// The session that a browser shows.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
    let mut cookies = cookies.split(';').map(str::trim);
    cookies.find_map(|cookie| cookie.strip_prefix(COOKIE)?.strip_prefix('='))
}
