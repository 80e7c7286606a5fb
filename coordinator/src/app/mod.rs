//! The program `coordinator`.

mod address;
mod cluster;
mod data;
mod options;
mod progress;
mod report;
mod signals;
mod watched;

use std::net::SocketAddr;

use common::{kernel::Kernel, plan::Plan};

pub(crate) use self::options::task_cost;
pub use self::{
    address::BadAddress,
    data::Foreign,
    options::{BadRequest, Options},
    progress::LogWriter,
    report::Report,
};
use self::{cluster::Cluster, signals::Signals, watched::Watched};
use crate::{
    descriptors,
    driver::{Clock, Driver, DriverHandle, new_manifest},
    exit::Exit,
    grpc::bind,
    sched::{Config, Scheduler},
    store::{DiskStore, RunManifest, Store},
    text::one_line,
};

/// Runs the program and says what went wrong, if something did.
pub async fn main(options: Options) -> Exit {
    let (plan, kernel) = match options
        .plan()
        .and_then(|plan| Ok((plan, options.local_kernel()?)))
    {
        Ok(asked) => asked,
        Err(bad) => return usage(&bad),
    };
    let address = match address::resolve(&options.listen, options.insecure).await {
        Ok(address) => address,
        Err(bad) => return usage(&bad),
    };
    serve(&options, (plan, kernel), address)
        .await
        .unwrap_or_else(|error| {
            eprintln!("error: {}", one_line(&error));
            Exit::Error
        })
}

fn usage(error: &dyn std::error::Error) -> Exit {
    eprintln!("error: {error}");
    Exit::Usage
}

async fn serve(
    options: &Options,
    (plan, kernel): (Option<Plan>, Option<Kernel>),
    address: SocketAddr,
) -> anyhow::Result<Exit> {
    descriptors::prepare();
    let mut signals = Signals::new()?;
    // The port first: a second coordinator is told so before it touches any data.
    let listener = bind(address)?;
    let address = listener.local_addr()?;
    let clock = Clock::start();
    let store = DiskStore::open(&options.data_dir)?;
    let stored = store.runs()?;
    let resumed = data::choose(options, plan.as_ref().map(Plan::spec), &stored)?;
    let scheduler = Scheduler::new(config(options), rand::random());
    let (driver, driver_end) = Driver::start(scheduler, Box::new(store), clock)?;
    let target = match (resumed, plan) {
        (Some(manifest), _) => Some(manifest),
        (None, Some(plan)) => Some(create(&driver, plan, clock).await?),
        (None, None) => None,
    };
    let mut cluster = Cluster::start(driver, driver_end, listener, clock);
    announce(options, target.as_ref(), &cluster.driver, address).await?;
    if let Some(kernel) = kernel {
        let config = options.local_worker(&format!("http://{address}"), kernel)?;
        cluster.start_local(config);
    }
    let watched = Watched {
        driver: cluster.driver.clone(),
        target: target.map(|manifest| manifest.run),
        exit_when_done: options.exits_when_done(),
        json: options.json,
    };
    let exit = tokio::select! {
        exit = watched.until_done() => exit,
        () = signals.next() => Ok(Exit::Interrupted),
        error = cluster.failed() => Err(error),
    };
    signals.next_one_exits();
    if matches!(exit, Ok(Exit::Interrupted)) {
        interrupted(options, &watched).await;
    }
    // Whatever else failed did so because the driver did: its reason is the one to tell.
    cluster.close().await?;
    exit
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

async fn create(driver: &DriverHandle, plan: Plan, clock: Clock) -> anyhow::Result<RunManifest> {
    let manifest = new_manifest(&plan, 0, clock.now());
    driver.submit(manifest.clone(), plan).await?;
    Ok(manifest)
}

/// The one line that says what runs where, and what to type on other machines.
async fn announce(
    options: &Options,
    target: Option<&RunManifest>,
    driver: &DriverHandle,
    address: SocketAddr,
) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let dir = data::shown(&options.data_dir);
    let serves = match target {
        Some(manifest) => {
            let status = driver.status(Some(manifest.run)).await?;
            let tasks = status.map(|report| report.status.tasks);
            let (total, done) = tasks.map_or((0, 0), |tasks| (tasks.total, tasks.done));
            let spec = manifest.spec;
            format!(
                "run {} (N = {}, {}), plan {}, {total} tasks, {done} done",
                manifest.run,
                spec.board,
                spec.layout,
                manifest.plan.short(),
            )
        }
        None => format!("{} runs", driver.runs().await?.len()),
    };
    let reached = match address.ip().is_unspecified() {
        true => format!("<this host>:{}", address.port()),
        false => address.to_string(),
    };
    eprintln!(
        "coordinator {version} listening on {address}: {serves}, data in {dir}; to count on any \
         machine: worker --coordinator http://{reached}"
    );
    Ok(())
}

/// Says that nothing is lost and how to go on.
async fn interrupted(options: &Options, watched: &Watched) {
    let dir = data::shown(&options.data_dir);
    let done = match watched.driver.status(watched.target).await {
        Ok(Some(report)) => {
            let tasks = report.status.tasks;
            format!("{} of {} tasks are done; ", tasks.done, tasks.total)
        }
        Ok(None) | Err(_) => String::new(),
    };
    eprintln!(
        "interrupted: {done}everything is saved in {dir}; the same command resumes (again Ctrl-C: exit at once)"
    );
}
