//! The program `coordinator`.

mod address;
mod cluster;
mod data;
mod door;
mod events;
mod farewell;
mod options;
mod progress;
mod report;
mod signals;
mod storage;
mod watched;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use anyhow::anyhow;
use common::{kernel::Kernel, plan::Plan, run::RunId};
use tokio::{
    net::TcpListener,
    task::{block_in_place, spawn_blocking},
    time::timeout,
};
use worker::{config::Address, signals::Signals};

pub(crate) use self::options::task_cost;
pub use self::{
    address::{Advertised, BadAddress, BadAdvertised},
    data::NoRun,
    options::{BadRequest, Options},
    report::Report,
};
use self::{
    address::{Listen, ListenHttp, Reached},
    cluster::Cluster,
    events::Events,
    farewell::farewell,
    report::{partial_json, print_line},
    storage::Storage,
    watched::Watched,
};
#[cfg(feature = "archive")]
use crate::store::Archiver;
use crate::{
    certify::public_key,
    descriptors,
    doors::{Gate, Locks, Role},
    driver::{Clock, Driver, DriverHandle, Serving, Submission, new_manifest},
    exit::Exit,
    grpc::Server,
    http::{self, Http},
    sched::{Command, Config, RunStatus, Scheduler},
    store::{RunManifest, RunState, StoreError, StoredRun},
    text::{method_name, one_line, plural, tell, thousands},
};

/// Nobody waits longer than this without a word about why.
const SILENCE: Duration = Duration::from_secs(1);

/// Runs the program and says what went wrong, if something did.
pub async fn main(options: Options) -> Exit {
    let kernel = match options.local_kernel() {
        Ok(kernel) => kernel,
        Err(bad) => return usage(&bad),
    };
    if let Some(url) = &options.store
        && let Err(bad) = url.reveal(std::env::args())
    {
        return usage(&bad);
    }
    let listen = match Listen::choose(&options).await {
        Ok(listen) => listen,
        Err(bad) => return usage(&bad),
    };
    let http = match ListenHttp::choose(&options).await {
        Ok(http) => http,
        Err(bad) => return usage(&bad),
    };
    let plan = match plan(&options).await {
        Ok(plan) => plan,
        Err(bad) => return usage(&bad),
    };
    serve(&options, (plan, kernel), (listen, http))
        .await
        .unwrap_or_else(|error| {
            tell(&format!("error: {}", one_line(&error)));
            Exit::Error
        })
}

/// The plan of the run asked for. That of a large board takes a while, which is said.
async fn plan(options: &Options) -> Result<Option<Plan>, BadRequest> {
    let asked = options.clone();
    let mut plan = spawn_blocking(move || asked.plan());
    let made = match timeout(SILENCE, &mut plan).await {
        Ok(made) => made,
        Err(_) => {
            if let Some(board) = options.n {
                tell(&format!("dividing the board of N = {board} into tasks"));
            }
            plan.await
        }
    };
    made.expect("making a plan does not panic")
}

fn usage(error: &dyn std::error::Error) -> Exit {
    tell(&format!("error: {error}"));
    Exit::Usage
}

async fn serve(
    options: &Options,
    (plan, kernel): (Option<Plan>, Option<Kernel>),
    (listen, http): (Listen, Option<ListenHttp>),
) -> anyhow::Result<Exit> {
    descriptors::prepare();
    let mut signals = Signals::new()?;
    // The port first: a second coordinator is told so before it touches any data.
    let (mut listener, mut http_listener) = bind(listen, http)?;
    let clock = Clock::start();
    let storage = match &options.store {
        None => Storage::directory(&options.data_dir, clock.now())?,
        Some(url) => {
            // Nobody is to knock in vain while it waits.
            drop((listener, http_listener));
            let opened = tokio::select! {
                opened = Storage::database(url) => opened?,
                _ = signals.next() => return Ok(Exit::Interrupted),
            };
            (listener, http_listener) = bind(listen, http)?;
            opened
        }
    };
    let http = http_listener;
    let address = listener.local_addr()?;
    let Storage {
        store,
        vault,
        signing_key,
        leader,
        mut replaced,
    } = storage;
    let kept = http::StorageHealth {
        sync_times: store.sync_times(),
        directory: options.store.is_none().then(|| options.data_dir.clone()),
    };
    let stored = store.runs()?;
    #[cfg(feature = "archive")]
    let archiver = options
        .archive
        .as_ref()
        .map(|to| block_in_place(|| Archiver::start(&options.data_dir, to)))
        .transpose()?;
    #[cfg(feature = "archive")]
    let copied = archiver.as_ref().map(Archiver::copied);
    #[cfg(not(feature = "archive"))]
    let copied = None;
    let asked = plan.as_ref().map(|plan| options.asked(*plan.spec()));
    let resumed = data::choose(options, asked.as_ref(), &stored)?;
    let (target, created) = match (resumed, plan) {
        (Some(manifest), _) => (Some(manifest), None),
        (None, Some(plan)) => (Some(new_manifest(&plan, 0, clock.now())), Some(plan)),
        (None, None) => (None, None),
    };
    let old = match &target {
        Some(target) => over(&stored, Some(target.run)),
        None => BTreeSet::new(),
    };
    let mut scheduler = Scheduler::new(config(options), rand::random());
    if let Some(manifest) = &target {
        scheduler.prefer(manifest.run);
    }
    // It reads the whole store here, and a database in a way that no async task may.
    let (driver, driver_end) = block_in_place(|| Driver::start(scheduler, store, clock))?;
    let driver = driver.of(Serving { leader, copied });
    if let (Some(manifest), Some(plan)) = (&target, created) {
        let submission = Submission {
            manifest: manifest.clone(),
            plan,
            // What is there already was looked at before.
            again: true,
            recheck: options.recheck.unwrap_or_default(),
        };
        driver.submit(submission).await?;
    } else if let (Some(manifest), Some(recheck)) = (&target, options.recheck) {
        driver
            .control(manifest.run, Command::Recheck(recheck))
            .await?;
    }
    let reached = Reached::new(address, options.advertise.as_ref());
    let http_reached = http.as_ref().map(|http| door::http_reached(options, http));
    let http_reached = http_reached.transpose()?;
    let gate = door::gate(
        options,
        address,
        (&reached, http_reached.as_ref()),
        (vault, clock),
    )?;
    let paste = door::lines(options, &gate, &reached)?;
    let own = own_address(address, &gate, options.local)?;
    let dashboard = http_reached
        .as_ref()
        .map(|http| door::dashboard(&gate, http));
    let server = Server::new(driver.clone(), clock, gate.clone()).with_dashboard(dashboard.clone());
    let mut cluster = Cluster::start(driver, driver_end, listener, server);
    announce(
        options,
        target.as_ref(),
        &cluster.driver,
        (address, &signing_key),
    )
    .await?;
    if let (Some(listener), Some(reached), Some(dashboard)) = (http, http_reached, dashboard) {
        tell(&format!("  dashboard at {}", dashboard.url));
        let names = vec![reached.host().to_owned()];
        let driver = cluster.driver.clone();
        let http = Http::new(driver, clock, kept, gate, (&dashboard, names));
        cluster.start_http(http, listener);
    }
    if !paste.is_empty() {
        tell(&paste);
    }
    if let Some(kernel) = kernel {
        cluster.start_local(options.local_worker(own, kernel));
    }
    let events = options
        .on_event
        .clone()
        .map(|program| Events::start(program, cluster.driver.clone(), over(&stored, None)));
    let watched = Watched {
        driver: cluster.driver.clone(),
        target: target.map(|manifest| manifest.run),
        exit_when_done: options.exits_when_done(),
        json: options.json,
        old,
    };
    let exit = tokio::select! {
        exit = watched.until_done() => exit,
        _ = signals.next() => Ok(Exit::Interrupted),
        // Before what the driver says of it.
        by = replaced.by() => Err(StoreError::Replaced { by }.into()),
        error = cluster.failed() => Err(error),
    };
    signals::next_one_exits(signals);
    if matches!(exit, Ok(Exit::Interrupted)) {
        interrupted(options, &watched).await?;
    }
    if matches!(exit, Ok(Exit::Success | Exit::Contradicted)) {
        farewell(&watched.driver, options.longest_sync()).await;
    }
    if let Some(events) = events {
        events.end().await;
    }
    // Whatever else failed did so because the driver did: its reason is the one to tell.
    cluster.close().await?;
    #[cfg(feature = "archive")]
    block_in_place(|| drop(archiver));
    exit
}

/// Takes the ports.
fn bind(
    listen: Listen,
    http: Option<ListenHttp>,
) -> anyhow::Result<(TcpListener, Option<TcpListener>)> {
    let listener = listen.bind()?;
    let http = http.map(ListenHttp::bind).transpose()?.flatten();
    Ok((listener, http))
}

/// The stored runs that have their results already, without the one asked for, if one is.
fn over(stored: &[StoredRun], asked: Option<RunId>) -> BTreeSet<RunId> {
    let over = |run: &&StoredRun| matches!(run.state, RunState::Complete | RunState::Contradicted);
    let others = stored.iter().filter(over).map(|run| run.manifest.run);
    others.filter(|run| Some(*run) != asked).collect()
}

fn config(options: &Options) -> Config {
    let usual = Config::default();
    Config {
        lease_ms: options.lease_ms,
        grace_ms: options.lease_ms,
        sync_floor_ms: options.sync_ms,
        dry_sync_ms: usual.dry_sync_ms.min(options.sync_ms),
        least_sync_ms: usual.least_sync_ms.min(options.sync_ms),
        ..usual
    }
}

/// Says what runs where.
async fn announce(
    options: &Options,
    target: Option<&RunManifest>,
    driver: &DriverHandle,
    (address, signing_key): (SocketAddr, &[u8; 32]),
) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let dir = options.place();
    let serves = match target {
        Some(manifest) => match driver.status(Some(manifest.run)).await? {
            Some(report) => serves(&report.status),
            None => format!("run {}", manifest.run),
        },
        None => plural(driver.runs().await?.len(), "run"),
    };
    let key = public_key(signing_key);
    tell(&format!(
        "coordinator {version} listening on {address}: {serves}\n  data in {dir}\n  certificates \
         are signed by key {key}"
    ));
    Ok(())
}

/// How the worker in this process calls its coordinator. Within a process nothing needs to be
/// encrypted; where loopback is asked for a token as well, it has one.
fn own_address(address: SocketAddr, gate: &Gate, local: bool) -> anyhow::Result<Address> {
    match gate {
        Gate::Guarded {
            locks: Locks::Tokens(keys),
            require_token: true,
        } => match keys.join(Role::Worker)? {
            Some(join) => Ok(Address::joined(join)),
            None => Err(anyhow!(
                "--local under --require-token counts with the join string in {}, which is gone",
                keys.join_path(Role::Worker).display()
            )),
        },
        Gate::Guarded {
            locks: Locks::Certificates(_),
            require_token: true,
        } if local => Err(anyhow!(
            "--local has no certificate to show: leave --require-token out, or start a worker with \
             --tls-cert"
        )),
        Gate::Guarded { .. } | Gate::Open(_) => {
            Ok(Address::new(&format!("http://{address}"), true)?)
        }
    }
}

/// The run asked for, and how far it is.
fn serves(status: &RunStatus) -> String {
    let RunStatus {
        manifest, tasks, ..
    } = status;
    let paused = match status.state {
        RunState::Paused => format!("\n  paused; to go on: queensctl resume {}", manifest.run),
        RunState::Running
        | RunState::Cancelled
        | RunState::Complete
        | RunState::Contradicted
        | RunState::Disputed => String::new(),
    };
    format!(
        "run {}\n  N = {}, method {}, plan {}, {}, {} done{paused}",
        manifest.run,
        manifest.spec.board,
        method_name(manifest.spec.layout),
        manifest.plan.short(),
        plural(tasks.total, "task"),
        thousands(tasks.done.into()),
    )
}

/// Says that nothing is lost and how to go on; with `--json` how far the run was, too.
async fn interrupted(options: &Options, watched: &Watched) -> anyhow::Result<()> {
    let dir = options.place();
    let report = match watched.driver.status(watched.target).await {
        Ok(report) => report.filter(|report| report.outcome.is_none()),
        // The driver has ended; what it said before is on disk.
        Err(_) => None,
    };
    let done = report.as_ref().map_or_else(String::new, |report| {
        let tasks = report.status.tasks;
        format!(
            "{} of {} done; ",
            thousands(tasks.done.into()),
            plural(tasks.total, "task")
        )
    });
    let command = match options.again {
        true => "the same command without --again resumes",
        false => "the same command resumes",
    };
    tell(&format!(
        "interrupted: {done}everything is saved in {dir}; {command} (Ctrl-C again: exit at once)"
    ));
    match report {
        Some(report) if options.json => print_line(&partial_json(&report.status).to_string()),
        Some(_) | None => Ok(()),
    }
}
