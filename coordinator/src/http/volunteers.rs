//! Counting in the tabs of visitors: a page, its counter, and their calls (`--volunteers`).
//!
//! A tab is the worker of a package. Its call carries the lines of the package that it has, which are the tasks that
//! it still counts and its results, and gets acknowledgements and the next package. The coordinator issues each
//! visitor an identity, as it does for other workers, and stores nothing for it.
//!
//! All visitors share a token, which no other caller can have. So they confirm each other at most at the level
//! *same token*, and the limits on the packages of one token hold for all of them together.

use std::time::Duration;

use auth::{Peer, VisitorQuotas};
use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use common::{
    compute::kernel::KernelName,
    messages::{
        run::{LeaseKey, SessionId},
        sync::{
            HeldLease, PackageLimits, PackageRequest, SelfTestReport, SyncReply, SyncRequest,
            Verdict, WorkerInfo,
        },
    },
    text::worker_name,
};
use maud::html;
use proto::connect::WorkerSecret;
use scheduler::ledger::Caller;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use worker::package::Lines;

use super::{
    App,
    guard::{Input, Refusal},
    layout,
};
use crate::driver::{Stopped, served_first};

/// The token of all visitors: names of tokens and certificates have no parentheses.
const TOKEN: &str = "(volunteers)";

/// Returns the text to which an identity is bound: a visitor gets another one with another public name.
fn bound_to(public_name: Option<&str>) -> String {
    public_name.map_or_else(|| TOKEN.to_owned(), |name| format!("{TOKEN} {name}"))
}

/// Time until the promised return of a package.
const AWAY: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// Maximum number of tasks of a package, whose lines fit in a request.
const MAX_TASKS: u32 = 64;

/// Work of a package, in seconds of one reference core per thread: minutes in a tab.
const SECONDS_PER_THREAD: f64 = 60.0;

/// Maximum number of threads of a tab.
const MAX_THREADS: u32 = 64;

/// A tab makes its calls in one session, however often it is reloaded.
const SESSION: SessionId = SessionId(1);

/// The counter, compiled from `worker/browser`.
const COUNTER: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../worker/browser/browser.wasm.gz"));

/// Returns the quotas of visitors, or refuses a call because there are no visitors.
fn quotas(app: &App) -> Result<&VisitorQuotas, Refusal> {
    let off = "counting in browsers is off; start the coordinator with --volunteers";
    app.visitors.as_ref().ok_or_else(|| Refusal::not_found(off))
}

/// Answers with the page that counts.
pub(super) async fn count_page(State(app): State<App>) -> Result<Response, Refusal> {
    quotas(&app)?;
    let version = common::messages::hex::encode(&Sha256::digest(COUNTER)[..8]);
    let body = html! {
        body data-counter=(format!("/count/counter.wasm?{version}")) {
            header { div.title { h1 { "Count N-Queens solutions in this tab" } } }
            main id="main" {
                section {
                    p { "How many ways are there to place N queens on an N × N board so that no two attack each other? "
                        "Nobody has a formula; the largest board whose number is known is N = 27. "
                        "This page counts small parts of " b id="which" { "a board" } ", and everyone's parts add up to the total." }
                    noscript { p.error { "This page needs scripts." } }
                    p.error id="problem" role="alert" hidden {}
                    form id="settings" {
                        p { label { "Name " input id="name" maxlength="64" pattern="[A-Za-z0-9._\\-]{1,64}" autocomplete="nickname"; } }
                        p { label { input id="named" type="checkbox"; " Name me in the certificate of the result" } }
                        p { label { "Cores " input id="cores" type="number" min="1" value="1"; } " " span.sub id="cores-all" {} }
                        p { label { input id="hidden-pause" type="checkbox"; " Pause while the tab is hidden" } }
                        p { label { input id="battery-pause" type="checkbox" checked; " Pause on battery" } }
                        p { button type="submit" id="start" disabled { "Start" } " " button type="button" id="stop" disabled { "Stop" } }
                        p.sub { "Each core takes at most 1 GiB of memory. The counts and the name are sent to this server, and nothing else." }
                    }
                }
                section {
                    h2 { "Progress" }
                    p id="state" role="status" { "Stopped." }
                    p { progress id="progress" max="1" value="0" aria-label="Current tasks" {} }
                    dl.figures {
                        div { dt { "Your tasks" } dd { strong id="tasks" { "0" } } }
                        div { dt { "Solutions counted" } dd { strong id="solutions" { "0" } } }
                        div { dt { "Your share" } dd { strong id="share" { "0 %" } } }
                        div { dt { "Run" } dd { strong id="run" { "–" } } }
                    }
                }
            }
        }
    };
    Ok(layout::document("queens: count", &["count.js"], &html! {}, &body).into_response())
}

/// Answers with the counter, under an address that changes with it.
pub(super) async fn counter(State(app): State<App>) -> Result<Response, Refusal> {
    quotas(&app)?;
    let headers = [
        (header::CONTENT_TYPE, "application/wasm"),
        (header::CONTENT_ENCODING, "gzip"),
        (header::CACHE_CONTROL, "max-age=31536000, immutable"),
    ];
    Ok((headers, COUNTER).into_response())
}

/// The call of a tab.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TabCall {
    /// The issued secret; absent in the first call.
    secret: Option<String>,
    name: String,
    /// Whether certificates name the visitor.
    named: bool,
    threads: u32,
    memory_bytes_per_thread: u64,
    /// Whether the tab wants a package; only one that holds no tasks gets it.
    wants_package: bool,
    /// The lines of its package, without those of acknowledged tasks; empty without a package.
    pub(super) lines: String,
}

/// The answer to a call of a tab.
#[derive(Debug, Default, Serialize)]
pub(super) struct TabAnswer {
    /// A secret, with which the tab repeats the call: the rest of it was ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    acknowledged: Vec<Acknowledged>,
    /// Proofs of the leases that the tab lost.
    revoked: Vec<String>,
    /// The lines of a new package; empty without one.
    package: String,
    /// Reason why there is none.
    reason: String,
    run: Option<Progress>,
}

#[derive(Debug, Serialize)]
struct Acknowledged {
    /// The proof of the result's lease.
    proof: String,
    /// Whether the count stands, as far as is known.
    accepted: bool,
    reason: String,
}

/// Progress of the run that is served first.
#[derive(Debug, Serialize)]
struct Progress {
    n: u32,
    tasks: u64,
    done: u64,
}

/// Handles the call of a tab.
pub(super) async fn sync(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    call: Result<Input<TabCall>, Refusal>,
) -> Result<Json<TabAnswer>, Refusal> {
    let quotas = quotas(&app)?;
    let Input(call) = call?;
    let bad = |what| Refusal::new(StatusCode::BAD_REQUEST, what);
    let name = worker_name(&call.name).map_err(|error| bad(error.to_string()))?;
    let public_name = call.named.then_some(name.as_str());
    let (identities, bound) = (&app.driver.identities, bound_to(public_name));
    let secret = call.secret.as_deref().and_then(|secret| secret.parse::<WorkerSecret>().ok());
    let Some(secret) = secret.filter(|secret| identities.is_issued(secret, Some(&bound))) else {
        quotas.issue(peer.address.ip())?;
        let secret = Some(identities.issue(Some(&bound)).expose());
        return Ok(Json(TabAnswer { secret, ..TabAnswer::default() }));
    };
    quotas.call(secret.worker())?;
    if !(1..=MAX_THREADS).contains(&call.threads) {
        return Err(bad(format!("invalid threads: expected 1 to {MAX_THREADS}")));
    }
    let lines = match call.lines.as_str() {
        "" => Lines::default(),
        lines => Lines::read(lines.as_bytes()).map_err(|error| bad(format!("lines: {error}")))?,
    };
    let package = (call.wants_package && lines.grants.is_empty()).then(|| PackageRequest {
        run: String::new(),
        away_ms: AWAY.as_millis().try_into().unwrap_or(u64::MAX),
        tasks: MAX_TASKS,
        core_seconds: SECONDS_PER_THREAD * f64::from(call.threads),
    });
    let packages = PackageLimits { away_seconds: AWAY.as_secs(), ..PackageLimits::default() };
    let public_name = public_name.map(Into::into);
    let caller =
        Caller { packages, public_name, ..Caller::new(secret.worker(), Some(TOKEN.into())) };
    let held = |lease: LeaseKey| HeldLease { lease, cost_done: 0, started: false, failed: false };
    let request = SyncRequest {
        worker: WorkerInfo {
            session: SESSION,
            name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: KernelName::Simd128,
            device: String::new(),
            threads: call.threads,
            memory_bytes_per_thread: call.memory_bytes_per_thread,
            // A visitor is a machine of its own, whose counts others recheck.
            machine: caller.machine,
        },
        held: lines.grants.iter().map(|grant| held(grant.lease)).collect(),
        partials: lines.partials,
        seconds_wanted: 0.0,
        // Tasks that the tab no longer holds return to the run, without counting as failed.
        draining: package.is_none(),
        self_test: SelfTestReport::default(),
        paused: String::new(),
        package,
    };
    let reply = app.driver.sync(caller, request).await?;
    Ok(Json(answer(&secret, reply, progress(&app).await?)))
}

fn answer(secret: &WorkerSecret, reply: SyncReply, run: Option<Progress>) -> TabAnswer {
    // A tab has no means to make a refused proof valid: it drops the result with the others.
    let acknowledged = reply.acknowledgements.into_iter().map(|of| Acknowledged {
        proof: of.lease.proof.to_string(),
        accepted: matches!(of.verdict, Verdict::Accepted | Verdict::Duplicate),
        reason: of.reason,
    });
    TabAnswer {
        secret: None,
        acknowledged: acknowledged.collect(),
        revoked: reply.revoked.iter().map(|of| of.lease.proof.to_string()).collect(),
        package: Lines::write(secret.worker(), &reply.grants),
        reason: reply.reason,
        run,
    }
}

/// Returns the progress without the status of the run, which adds up all its counts.
async fn progress(app: &App) -> Result<Option<Progress>, Stopped> {
    let runs = app.driver.runs().await?;
    let first = served_first(&runs);
    let run = runs.iter().find(|run| Some(run.manifest.run) == first);
    Ok(run.map(|run| Progress {
        n: run.manifest.spec.board.n().into(),
        tasks: run.tasks.total,
        done: run.tasks.done,
    }))
}
