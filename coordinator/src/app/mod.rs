//! The program `coordinator`.

mod address;
mod archive;
mod cluster;
mod data;
mod door;
mod events;
mod farewell;
mod options;
mod progress;
mod report;
mod service;
mod signals;
mod storage;
mod watched;

use std::time::Duration;

use common::{kernel::Kernel, plan::Plan};
use tokio::{task::spawn_blocking, time::timeout};
use worker::signals::Signals;

pub use self::options::task_cost;
pub use self::{
    address::{Advertised, BadAddress, BadAdvertised},
    data::NoRun,
    options::{BadRequest, Options},
    report::Report,
};
use self::{
    address::{Listen, ListenHttp},
    door::Ports,
    service::Service,
    storage::Storage,
};
use crate::{
    descriptors,
    driver::Clock,
    exit::Exit,
    store::StoreError,
    text::{one_line, tell},
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
    places: (Listen, Option<ListenHttp>),
) -> anyhow::Result<Exit> {
    descriptors::prepare();
    let mut signals = Signals::new()?;
    let clock = Clock::start();
    let (ports, storage) = tokio::select! {
        opened = open(options, places, clock) => opened?,
        _ = signals.next() => return Ok(Exit::Interrupted),
    };
    let mut service = Service::start(options, plan, (ports, storage), clock).await?;
    if let Some(kernel) = kernel {
        service.count_here(options, kernel);
    }
    let exit = tokio::select! {
        exit = service.watched.until_done() => exit,
        _ = signals.next() => Ok(Exit::Interrupted),
        // Before what the driver says of it.
        by = service.replaced.by() => Err(StoreError::Replaced { by }.into()),
        error = service.cluster.failed() => Err(error),
    };
    signals::next_one_exits(signals);
    service.end(options, exit).await
}

/// Takes the ports, and opens what the runs are kept in.
async fn open(
    options: &Options,
    (listen, http): (Listen, Option<ListenHttp>),
    clock: Clock,
) -> anyhow::Result<(Ports, Storage)> {
    // The port first: a second coordinator is told so before it touches any data.
    let ports = Ports::take(listen, http)?;
    let Some(url) = &options.store else {
        return Ok((ports, Storage::directory(&options.data_dir, clock.now())?));
    };
    // Nobody is to knock in vain while it waits.
    drop(ports);
    let storage = Storage::database(url).await?;
    Ok((Ports::take(listen, http)?, storage))
}
