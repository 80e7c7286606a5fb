//! The program `coordinator`.

mod endpoints;
mod events;
mod options;
mod referee;
mod run_waiter;
mod select_run;
mod service;
mod storage;

use std::{process, time::Duration};

use cli::exit::{BadUsage, Exit, Signals};
use common::plan::Plan;
use store::{Clock, StoreError, descriptors};
use tokio::{task::spawn_blocking, time::timeout};
use view::text::{eprint_line, one_line};

pub use self::options::Options;

use self::{endpoints::Listeners, select_run::check_directory, service::Service, storage::Storage};

/// Runs the program and prints its error, if any.
pub async fn main(options: Options) -> Exit {
    run(&options).await.unwrap_or_else(|error| {
        eprint_line(&format!("error: {}", one_line(&error)));
        if error.is::<BadUsage>() { Exit::Usage } else { Exit::Error }
    })
}

async fn run(options: &Options) -> anyhow::Result<Exit> {
    let kernel = options.local_kernel()?;
    if let Some(url) = &options.store {
        url.reveal(std::env::args_os()).map_err(BadUsage::of)?;
    }
    check_directory(options)?;
    // Bind the ports first, so that a second coordinator fails before it touches any data.
    let listeners = Listeners::bind(options).await?;
    let plan = plan(options).await?;
    descriptors::prepare();
    let mut signals = Signals::new()?;
    let clock = Clock::start();
    let (listeners, storage) = match &options.store {
        None => (listeners, Storage::directory(&options.data_dir, clock.now())?),
        Some(url) => {
            // Clients must not connect to a standby.
            drop(listeners);
            let storage = tokio::select! {
                storage = Storage::database(url) => storage?,
                _ = signals.next() => return Ok(Exit::Interrupted),
            };
            (Listeners::bind(options).await?, storage)
        }
    };
    let mut service = Service::start(options, plan, (listeners, storage), clock).await?;
    if let Some(kernel) = kernel {
        service.start_local_worker(options, kernel);
    }
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

/// Makes the plan of the requested run; prints a message if it takes long.
async fn plan(options: &Options) -> Result<Option<Plan>, BadUsage> {
    const QUIET_PERIOD: Duration = Duration::from_secs(1);
    let requested = options.clone();
    let mut plan = spawn_blocking(move || requested.plan());
    let result = match timeout(QUIET_PERIOD, &mut plan).await {
        Ok(result) => result,
        Err(_) => {
            if let Some(board) = options.n {
                eprint_line(&format!("planning tasks for N = {board}…"));
            }
            plan.await
        }
    };
    result.expect("making a plan does not panic")
}
