//! A coordinator in service: from its storage and its ports to the last word of its runs.

use std::{collections::BTreeSet, net::SocketAddr};

use common::{kernel::Kernel, plan::Plan, run::RunId};
use tokio::task::block_in_place;
use worker::config::Address;

use super::{
    Options,
    archive::Archive,
    cluster::Cluster,
    data::{self, NoRun},
    door::{Entrance, Ports},
    events::Events,
    farewell::farewell,
    report::{partial_json, print_line},
    storage::{Replaced, Storage},
    watched::Watched,
};
use crate::{
    certify::public_key,
    driver::{Clock, Driver, DriverHandle, Serving, Submission, new_manifest},
    exit::Exit,
    grpc::Server,
    http::{self, Http},
    room::SeenRoom,
    sched::{Command, Config, Millis, RunStatus, RunSummary, Scheduler},
    store::{RunManifest, RunState, StoredRun},
    text::{method_name, plural, tell, thousands},
};

/// Everything that serves, and what is waited for.
pub(super) struct Service {
    pub(super) cluster: Cluster,
    pub(super) watched: Watched,
    pub(super) replaced: Replaced,
    events: Option<Events>,
    archive: Archive,
    /// Where a worker in this process finds its coordinator.
    own: Address,
}

impl Service {
    /// Starts the run asked for, or goes on with it; serves it, and says where.
    pub(super) async fn start(
        options: &Options,
        plan: Option<Plan>,
        (ports, storage): (Ports, Storage),
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let Storage {
            store,
            vault,
            signing_key,
            leader,
            replaced,
        } = storage;
        let directory = options.store.is_none().then(|| options.data_dir.clone());
        let disk = directory.map(SeenRoom::watch);
        let kept = http::StorageHealth {
            sync_times: store.sync_times(),
            disk: disk.clone(),
        };
        let stored = store.runs()?;
        let archive = Archive::start(options)?;
        let wanted = Wanted::choose(options, plan, &stored, clock.now())?;
        let target = wanted.as_ref().map(|wanted| wanted.manifest.run);
        let scheduler = scheduler(options, target);
        // It reads the whole store here, and a database in a way that no async task may.
        let (driver, driver_end) = block_in_place(|| Driver::start(scheduler, store, clock))?;
        let driver = driver.of(Serving {
            leader,
            copied: archive.copied(),
            disk,
        });
        if let Some(wanted) = wanted {
            wanted.begin(options, &driver).await?;
        }
        let address = ports.grpc.local_addr()?;
        let entrance = Entrance::open(options, &ports, (vault, clock))?;
        let server = Server::new(driver.clone(), clock, entrance.gate.clone())
            .with_dashboard(entrance.dashboard().cloned());
        let mut cluster = Cluster::start(driver.clone(), driver_end, ports.grpc, server);
        announce(options, target, &driver, (address, &signing_key)).await?;
        if let (Some(listener), Some(web)) = (ports.http, &entrance.web) {
            tell(&format!("  dashboard at {}", web.dashboard.url));
            let gate = entrance.gate.clone();
            let http = Http::new(driver.clone(), clock, kept, gate, web.dashboard_and_names());
            cluster.start_http(http, listener);
        }
        if !entrance.paste.is_empty() {
            tell(&entrance.paste);
        }
        let events = options
            .on_event
            .clone()
            .map(|program| Events::start(program, driver.clone(), over(&stored, None)));
        let watched = Watched {
            driver,
            target,
            exit_when_done: options.exits_when_done(),
            json: options.json,
            old: target.map_or_else(BTreeSet::new, |target| over(&stored, Some(target))),
        };
        Ok(Self {
            cluster,
            watched,
            replaced,
            events,
            archive,
            own: entrance.own,
        })
    }

    /// Counts in this process too.
    pub(super) fn count_here(&mut self, options: &Options, kernel: Kernel) {
        let worker = options.local_worker(self.own.clone(), kernel);
        self.cluster.start_local(worker);
    }

    /// Ends everything in order, and says how the program ends.
    pub(super) async fn end(
        self,
        options: &Options,
        exit: anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        // Words that nobody takes are no reason to leave anything open.
        let told = match exit {
            Ok(Exit::Interrupted) => interrupted(options, &self.watched).await,
            Ok(Exit::Success | Exit::Contradicted) => {
                farewell(&self.watched.driver, options.longest_sync()).await;
                Ok(())
            }
            Ok(Exit::Usage | Exit::Error) | Err(_) => Ok(()),
        };
        if let Some(events) = self.events {
            events.end().await;
        }
        // Whatever else failed did so because the driver did: its reason is the one to tell.
        self.cluster.close().await?;
        self.archive.end();
        told.and(exit)
    }
}

/// The run that the command line asks for.
struct Wanted {
    manifest: RunManifest,
    /// Its plan, if it is a new one.
    new: Option<Plan>,
}

impl Wanted {
    /// One that is stored, or a new one; `None` where all that is stored is to be served.
    fn choose(
        options: &Options,
        plan: Option<Plan>,
        stored: &[StoredRun],
        now: Millis,
    ) -> Result<Option<Self>, NoRun> {
        let asked = plan.as_ref().map(|plan| options.asked(*plan.spec()));
        let resumed = data::choose(options, asked.as_ref(), stored)?;
        let resumed = resumed.map(|manifest| Self {
            manifest,
            new: None,
        });
        Ok(resumed.or_else(|| {
            plan.map(|plan| Self {
                manifest: new_manifest(&plan, 0, now),
                new: Some(plan),
            })
        }))
    }

    /// Starts it, or sets how much of it is counted twice, where the command line says so.
    async fn begin(self, options: &Options, driver: &DriverHandle) -> anyhow::Result<()> {
        if let Some(plan) = self.new {
            let submission = Submission {
                manifest: self.manifest,
                plan,
                // What is there already was looked at before.
                again: true,
                recheck: options.recheck.unwrap_or_default(),
            };
            driver.submit(submission).await?;
        } else if let Some(recheck) = options.recheck {
            let command = Command::Recheck(recheck);
            driver.control(self.manifest.run, command).await?;
        }
        Ok(())
    }
}

/// The stored runs that have their results already, without the one asked for, if one is.
fn over(stored: &[StoredRun], asked: Option<RunId>) -> BTreeSet<RunId> {
    let over = |run: &&StoredRun| matches!(run.state, RunState::Complete | RunState::Contradicted);
    let others = stored.iter().filter(over).map(|run| run.manifest.run);
    others.filter(|run| Some(*run) != asked).collect()
}

/// With what the command line says of it; the run asked for is served first.
fn scheduler(options: &Options, target: Option<RunId>) -> Scheduler {
    let mut scheduler = Scheduler::new(config(options), rand::random());
    if let Some(target) = target {
        scheduler.prefer(target);
    }
    scheduler
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
    target: Option<RunId>,
    driver: &DriverHandle,
    (address, signing_key): (SocketAddr, &[u8; 32]),
) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let dir = options.place();
    let serves = match target {
        Some(run) => {
            let served = match driver.status(Some(run)).await? {
                Some(report) => serves(&report.status),
                None => format!("run {run}"),
            };
            served + &also_open(run, &driver.runs().await?)
        }
        None => plural(driver.runs().await?.len(), "run"),
    };
    let key = public_key(signing_key);
    tell(&format!(
        "coordinator {version} listening on {address}: {serves}\n  data in {dir}\n  certificates \
         are signed by this key:\n    {key}"
    ));
    Ok(())
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

/// What else workers are given: with another method or task cost than before a board is a run of its
/// own, and the earlier one stays open, which not everybody means.
fn also_open(target: RunId, runs: &[RunSummary]) -> String {
    let others = runs
        .iter()
        .filter(|run| run.manifest.run != target && run.state == RunState::Running);
    let others: Vec<_> = others.map(|run| &run.manifest).collect();
    match others.as_slice() {
        [] => String::new(),
        [other] => format!(
            "\n  also open: run {}, N = {}, method {}",
            other.run,
            other.spec.board,
            method_name(other.spec.layout)
        ),
        several => format!(
            "\n  also open: {}; `queensctl runs` lists them",
            plural(several.len(), "run")
        ),
    }
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
        "interrupted: {done}everything is saved in {dir};\n  {command} (Ctrl-C again: exit at once)"
    ));
    match report {
        Some(report) if options.json => print_line(&partial_json(&report.status).to_string()),
        Some(_) | None => Ok(()),
    }
}
