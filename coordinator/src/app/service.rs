//! A serving coordinator and its concurrent parts, from start to shutdown.

use std::{collections::BTreeSet, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use anyhow::{Context as _, anyhow};
use cli::{
    exit::Exit,
    terminal::{eprint_info, print_json},
};
use common::{compute::kernel::Kernel, messages::run::RunId, plan::Plan};
use scheduler::{Config, RunSummary, Scheduler, ledger::Caller};
use store::{Archiver, Clock, RunState, StoredRun, certify::public_key};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::{JoinHandle, block_in_place},
    time::timeout,
};
use view::{
    outcome_json,
    text::{eprint_line, method_name, plural, thousands},
};
use worker::config::InProcess;

use super::{
    Options, Starting,
    endpoints::{Endpoints, Listeners},
    events::Events,
    referee::{self, RefereeBudget},
    run_waiter::{Reported, RunWaiter, notify_workers, result_printed},
    select_run::SelectedRun,
    storage::{Replaced, Storage},
};
use crate::{
    driver::{DiskSpaceMonitor, Driver, DriverError, DriverHandle, LOCAL_WORKER, Serving},
    grpc::Server,
    http::{self, Http},
    message,
};

/// Time limit for the shutdown of each part; a worker abandons a longer task.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The running parts of the program.
pub(super) struct Service {
    pub(super) cluster: Cluster,
    pub(super) waiter: RunWaiter,
    pub(super) replaced: Replaced,
    events: Option<Events>,
    archiver: Option<Archiver>,
}

impl Service {
    /// Starts or resumes the requested run, serves it, and prints where.
    pub(super) async fn start(
        options: &Options,
        (plan, kernel): (Option<Plan>, Option<Kernel>),
        (listeners, storage): (Listeners, Storage),
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let starting = Starting::begin(options)?;
        let Storage { store, archiver, secrets, signing_key, leader, outages, replaced } = storage;
        let directory = options.store.is_none().then(|| options.data_dir.clone());
        let disk = directory.clone().map(DiskSpaceMonitor::start);
        let sync_times = store.sync_times();
        let health = http::StorageHealth { sync_times, disk: disk.clone(), directory };
        let stored = store.runs()?;
        let selected = SelectedRun::choose(options, plan, &stored, clock.now())?;
        let target = selected.as_ref().map(|selected| selected.manifest.run);
        let budget = options.referee();
        let endpoints = Endpoints::open(options, &listeners, (secrets, clock))?;
        let mut scheduler = scheduler(options, target, budget);
        scheduler.restore_trusted_tokens(endpoints.authenticator.trusted_tokens());
        let leading = format!("{} leads, term {}", leader.name, leader.term);
        // Blocks while it reads the whole store.
        let (driver, driver_end) = block_in_place(|| Driver::start(scheduler, store, clock))?;
        let driver = driver.with_serving(Serving {
            leader,
            archive_lag: archiver.as_ref().map(Archiver::lag),
            disk,
            outages,
        });
        if let Some(selected) = selected {
            selected.begin(options, &driver).await?;
        }
        let address = listeners.grpc.local_addr()?;
        let dashboard_text = endpoints.dashboard_text(options)?;
        let Endpoints { authenticator, join_commands, dashboard, http_hosts } = endpoints;
        let server = Server::new(driver.clone(), clock, authenticator.clone())
            .with_dashboard(dashboard.clone());
        let mut cluster = Cluster::start(driver.clone(), driver_end, listeners.grpc, server);
        driver.note_event("leader", leading).await?;
        let runs = driver.runs().await?;
        // From now on a signal ends all parts in order.
        drop(starting);
        eprint_info(&match kernel {
            Some(kernel) if options.is_brief() => format!(
                "{}\n  kernel {kernel}, {}, data in {}",
                served(target, &runs),
                plural(options.threads().get(), "thread"),
                options.storage_name()
            ),
            _ => format!(
                "coordinator {} listening on {address}: {}{}\n  data in {}\n  certificates are signed \
                 by this key:\n    {}",
                env!("CARGO_PKG_VERSION"),
                served(target, &runs),
                target.map_or_else(String::new, |run| also_running(run, &runs)),
                options.storage_name(),
                public_key(&signing_key)
            ),
        });
        if let (Ok(listener), Ok(dashboard)) = (listeners.http, &dashboard) {
            let http =
                Http::new(driver.clone(), clock, health, authenticator, (dashboard, http_hosts));
            let http = if options.volunteers { http.with_volunteers() } else { http };
            let close = until_set(cluster.close_server.subscribe());
            cluster.add(HTTP_SERVER, async {
                http.serve(listener, close).await;
                Ok(())
            });
        }
        // A warning is among the commands.
        let show = if options.insecure { eprint_line } else { eprint_info };
        let texts = dashboard_text.into_iter().chain([join_commands]);
        texts.filter(|text| !text.is_empty()).for_each(|text| show(&text));
        cluster.add(REFEREE_PART, referee::serve(driver.clone(), budget));
        let events = options
            .on_event
            .clone()
            .map(|program| Events::start(program, driver.clone(), with_results(&stored, None)));
        let waiter = RunWaiter {
            driver,
            target,
            exit_when_done: options.exits_when_done(),
            json: options.json,
            verbose: options.verbose,
            is_local: options.local,
            // A process that exits when done also prints the results of earlier ones.
            reported: match target {
                None if options.exits_when_done() => Reported::default(),
                _ => Reported::new(with_results(&stored, target)),
            },
        };
        Ok(Self { cluster, waiter, replaced, events, archiver })
    }

    pub(super) fn start_local_worker(&mut self, options: &Options, kernel: Kernel) {
        let driver = self.cluster.driver.clone();
        let calls = InProcess::new(move |request| {
            let driver = driver.clone();
            async move { driver.sync(Caller::local(LOCAL_WORKER), request).await.ok() }
        });
        let config = options.local_worker(calls, kernel);
        let stop = until_set(self.cluster.stop_local.subscribe());
        self.cluster.add(LOCAL_PART, async {
            let counted = worker::run(config, stop).await;
            counted.context("the worker in this process failed")?;
            Ok(())
        });
    }

    /// Ends all parts in order; returns the exit code.
    pub(super) async fn end(
        self,
        options: &Options,
        exit: anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        // A print error is returned after everything has ended.
        let printed = match exit {
            Ok(Exit::Interrupted) => interrupted(options, &self.waiter).await,
            Ok(Exit::Success | Exit::Unverified | Exit::Contradicted) => {
                notify_workers(&self.waiter.driver, options.max_sync_interval()).await;
                Ok(())
            }
            Ok(Exit::Usage | Exit::Error | Exit::TimedOut) | Err(_) => Ok(()),
        };
        if let Some(events) = self.events {
            events.end().await;
        }
        // An error of the driver causes all others.
        self.cluster.close().await?;
        // Dropping the archiver copies the rest.
        block_in_place(|| {
            let _dropped = self.archiver;
        });
        printed.and(exit)
    }
}

/// Returns the stored runs that have results, except the requested one.
fn with_results(stored: &[StoredRun], target: Option<RunId>) -> BTreeSet<RunId> {
    use RunState::{Complete, Contradicted, Disputed};
    let has_result = |run: &&StoredRun| matches!(run.state, Complete | Contradicted | Disputed);
    let others = stored.iter().filter(has_result).map(|run| run.manifest.run);
    others.filter(|run| Some(*run) != target).collect()
}

/// Creates the scheduler; it serves the requested run first.
fn scheduler(options: &Options, target: Option<RunId>, budget: RefereeBudget) -> Scheduler {
    let config = Config {
        lease_ms: options.lease_ms,
        sync_floor_ms: options.sync_ms,
        recounts: options.recounts,
        ..Config::default()
    };
    let mut scheduler = Scheduler::new(config, rand::random());
    scheduler.set_referee(budget.threads.0.into(), budget.bytes_per_thread());
    if let Some(target) = target {
        scheduler.prefer(target);
    }
    scheduler
}

/// Describes the requested run and its progress; without one, returns the number of runs.
fn served(target: Option<RunId>, runs: &[RunSummary]) -> String {
    let Some(run) = target else { return plural(runs.len(), "run") };
    let Some(RunSummary { manifest, tasks, state, .. }) =
        runs.iter().find(|known| known.manifest.run == run)
    else {
        return format!("run {run}");
    };
    let state = match state {
        RunState::Paused => format!("\n  paused; run `queensctl resume {run}` to continue"),
        RunState::Complete => "\n  complete already; --new-run counts it again".to_owned(),
        RunState::Running | RunState::Cancelled | RunState::Contradicted | RunState::Disputed => {
            String::new()
        }
    };
    format!(
        "run {run}\n  N = {}, method {}, plan {}, {}, {} done{state}",
        manifest.spec.board,
        method_name(manifest.spec.layout),
        manifest.plan.short(),
        plural(tasks.total, "task"),
        thousands(tasks.done.into()),
    )
}

/// Names other running runs: a user may not expect that another method or task cost
/// starts a new run while the earlier one stays open.
fn also_running(target: RunId, runs: &[RunSummary]) -> String {
    let others =
        runs.iter().filter(|run| run.manifest.run != target && run.state == RunState::Running);
    let others: Vec<_> = others.map(|run| &run.manifest).collect();
    match others.as_slice() {
        [] => String::new(),
        [other] => format!(
            "\n  also running: run {}, N = {}, method {}",
            other.run,
            other.spec.board,
            method_name(other.spec.layout)
        ),
        several => {
            format!("\n  also running: {} (see `queensctl runs`)", plural(several.len(), "run"))
        }
    }
}

/// Prints how to resume after an interruption; with `--json`, also the progress.
async fn interrupted(options: &Options, waiter: &RunWaiter) -> anyhow::Result<()> {
    let dir = options.storage_name();
    // Even if the driver has failed, all acknowledged changes are durable.
    let report = waiter.driver.status(waiter.target).await.ok().flatten();
    let report = report.filter(|report| report.outcome.is_none());
    let done = report.as_ref().map_or_else(String::new, |report| {
        let tasks = report.status.run.tasks;
        format!("{} of {} done; ", thousands(tasks.done.into()), plural(tasks.total, "task"))
    });
    let command = match options.new_run {
        true => "the same command without --new-run resumes",
        false => "the same command resumes",
    };
    eprint_info(&format!(
        "interrupted: {done}everything is saved in {dir};\n  {command} (Ctrl-C again: exit at once)"
    ));
    match report {
        Some(report) if options.json => {
            result_printed(print_json(&outcome_json(&message::status(&report)).to_string()))
        }
        Some(_) | None => Ok(()),
    }
}

/// The concurrent parts of the process.
pub(super) struct Cluster {
    driver: DriverHandle,
    /// Names and tasks of the parts, which run until the shutdown.
    /// The driver is the first, because the others fail if it fails.
    parts: Vec<(&'static str, JoinHandle<anyhow::Result<()>>)>,
    close_server: watch::Sender<bool>,
    stop_local: watch::Sender<bool>,
}

const DRIVER: &str = "the driver";
const GRPC_SERVER: &str = "the gRPC server";
const HTTP_SERVER: &str = "the HTTP server";
const LOCAL_PART: &str = "the worker in this process";
const REFEREE_PART: &str = "the referee";

impl Cluster {
    fn start(
        driver: DriverHandle,
        driver_end: oneshot::Receiver<Result<(), DriverError>>,
        listener: TcpListener,
        server: Server,
    ) -> Self {
        let (close_server, stop_local) = (watch::Sender::new(false), watch::Sender::new(false));
        let close = until_set(close_server.subscribe());
        let mut cluster = Self { driver, parts: Vec::new(), close_server, stop_local };
        cluster.add(DRIVER, async { Ok(driver_end.await.map_err(|_| anyhow!("it panicked"))??) });
        cluster.add(GRPC_SERVER, async { Ok(server.serve(listener, close).await?) });
        cluster
    }

    fn add(
        &mut self,
        name: &'static str,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.parts.push((name, tokio::spawn(work)));
    }

    /// Waits until a part ends by itself; returns its error.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        let (place, ended) = poll_fn(|context| {
            let mut parts = self.parts.iter_mut().enumerate();
            let ended = parts.find_map(|(place, (_, part))| match Pin::new(part).poll(context) {
                Poll::Ready(ended) => Some((place, ended)),
                Poll::Pending => None,
            });
            ended.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        let (name, _) = self.parts.remove(place);
        match result(name, ended) {
            Ok(()) => anyhow!("{name} ended unexpectedly"),
            Err(error) => error,
        }
    }

    /// Waits for the result of a part, and aborts it after `limit`.
    async fn end(&mut self, name: &str, limit: Duration) -> anyhow::Result<()> {
        let Some(place) = self.parts.iter().position(|(known, _)| *known == name) else {
            return Ok(());
        };
        let (name, mut part) = self.parts.remove(place);
        match timeout(limit, &mut part).await {
            Ok(ended) => result(name, ended),
            Err(_) => {
                part.abort();
                Ok(())
            }
        }
    }

    /// Shuts down all parts and returns the driver's error. The worker is the first,
    /// so that its last results are accepted; the driver is the last.
    async fn close(mut self) -> anyhow::Result<()> {
        // A count in progress stops once its caller is dropped.
        let _ = self.end(REFEREE_PART, Duration::ZERO).await;
        self.stop_local.send_replace(true);
        let _ = self.end(LOCAL_PART, SHUTDOWN_TIMEOUT).await;
        self.close_server.send_replace(true);
        // Clients may keep connections open.
        let _ = self.end(GRPC_SERVER, SHUTDOWN_TIMEOUT).await;
        let _ = self.end(HTTP_SERVER, SHUTDOWN_TIMEOUT).await;
        self.driver.stop().await;
        self.end(DRIVER, Duration::MAX).await
    }
}

fn result(
    name: &str,
    ended: Result<anyhow::Result<()>, tokio::task::JoinError>,
) -> anyhow::Result<()> {
    ended.unwrap_or_else(|error| Err(anyhow!("{name}: {error}")))
}

async fn until_set(mut flag: watch::Receiver<bool>) {
    // A dropped sender means that the process is exiting.
    let _ = flag.wait_for(|is_set| *is_set).await;
}
