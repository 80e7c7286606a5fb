//! The program `coordinator`.

mod endpoints;
mod events;
mod options;
mod referee;
mod run_waiter;
mod select_run;
mod service;
mod standby;
mod storage;
#[cfg(unix)]
mod systemd;

use std::{
    io, process,
    time::{Duration, SystemTime},
};

use cli::{
    exit::{BadUsage, Exit, Signals},
    terminal::eprint_info,
};
use common::plan::Plan;
use store::{Clock, StoreError, descriptors};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use view::text::{eprint_line, one_line};

pub use self::options::Options;

use self::{
    endpoints::Listeners, select_run::check_directory, service::Service, standby::Standby,
    storage::Storage,
};

/// Runs the program and prints its error, if any.
pub async fn main(options: Options) -> Exit {
    run(&options).await.unwrap_or_else(|error| {
        eprint_line(&format!("error: {}", one_line(&error)));
        if error.is::<BadUsage>() { Exit::Usage } else { Exit::Error }
    })
}

async fn run(options: &Options) -> anyhow::Result<Exit> {
    check_clock(SystemTime::now())?;
    let kernel = options.local_kernel()?;
    if let Some(url) = &options.store {
        url.reveal(std::env::args_os()).map_err(BadUsage::of)?;
    }
    check_directory(options)?;
    // Everything that can be checked without the data comes before it. A second coordinator
    // fails at its ports.
    let listeners = Listeners::bind(options).await?;
    let plan = plan(options).await?;
    descriptors::prepare();
    let mut signals = Signals::new()?;
    let clock = Clock::start();
    #[cfg(unix)]
    let systemd = systemd::Systemd::start();
    let (listeners, storage) = match &options.store {
        None => {
            let (dir, archive) = (&options.data_dir, options.archive.as_ref());
            let _starting = Starting::begin(options)?;
            (listeners, Storage::directory(dir, archive, clock.now())?)
        }
        Some(url) => {
            let standby = Standby::new(options, &listeners, clock)?;
            // Workers and queensctl must not connect to a standby.
            drop(listeners.grpc);
            let storage = tokio::select! {
                storage = Storage::database(url, standby) => storage?,
                _ = signals.next() => return Ok(Exit::Interrupted),
            };
            (Listeners { grpc: Listeners::bind_grpc(options).await?, ..listeners }, storage)
        }
    };
    let mut service = Service::start(options, (plan, kernel), (listeners, storage), clock).await?;
    if let Some(kernel) = kernel {
        service.start_local_worker(options, kernel);
    }
    #[cfg(unix)]
    systemd.serves(&service.waiter.driver);
    let exit = tokio::select! {
        exit = service.waiter.wait() => exit,
        _ = signals.next() => Ok(Exit::Interrupted),
        // The heartbeat notices a failover even if the driver writes nothing.
        by = service.replaced.by() => Err(StoreError::LostLeadership { by }.into()),
        error = service.cluster.failed() => Err(error),
    };
    tokio::spawn(async move {
        // The next signal exits immediately: all acknowledged changes are durable.
        signals.next_distinct().await;
        process::exit(Exit::Interrupted as i32);
    });
    service.end(options, exit).await
}

/// The start, which a signal ends with the process, until dropped.
///
/// Reading the data and the first pass of the archive block the task that waits for signals, and may take
/// minutes. Nothing is lost: all acknowledged changes are durable.
struct Starting(JoinHandle<()>);

impl Starting {
    fn begin(options: &Options) -> io::Result<Self> {
        let (mut signals, place) = (Signals::new()?, options.storage_name());
        Ok(Self(tokio::spawn(async move {
            signals.next().await;
            eprint_info(&format!("interrupted during the start: everything is saved in {place}"));
            process::exit(Exit::Interrupted as i32);
        })))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The latest time at which a coordinator starts, in seconds since 1970: in the year 9000.
/// Certificates end at most 20 years later, and times are written with four-digit years.
const LATEST_S: u64 = 221_845_000_000;

/// Fails if this machine's clock is out of the range of all times that the program stores.
fn check_clock(now: SystemTime) -> anyhow::Result<()> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    match since.is_ok_and(|since| since.as_secs() <= LATEST_S) {
        true => Ok(()),
        false => anyhow::bail!(
            "this machine's clock is before 1970 or after the year 9000: set it and start again"
        ),
    }
}

/// Makes the plan of the requested run; prints a message if it takes long.
async fn plan(options: &Options) -> Result<Option<Plan>, BadUsage> {
    const QUIET_PERIOD: Duration = Duration::from_secs(1);
    let requested = options.clone();
    let mut plan = spawn_blocking(move || requested.plan());
    let result = match timeout(QUIET_PERIOD, &mut plan).await {
        Ok(result) => result,
        Err(_) => {
            if let Some(board) = options.n {
                eprint_info(&format!("planning tasks for N = {board}…"));
            }
            plan.await
        }
    };
    result.expect("making a plan does not panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_out_of_range_is_refused() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for now in [at(0), SystemTime::now(), at(LATEST_S)] {
            check_clock(now).unwrap();
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        // In the year 9990 certificates would end after the year 9999.
        for now in [before, at(LATEST_S + 1), at(253_000_000_000)] {
            let error = check_clock(now).unwrap_err().to_string();
            assert!(error.contains("clock is before 1970 or after"), "{error}");
        }
    }
}
