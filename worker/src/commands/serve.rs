//! `worker --join STRING`, `worker --coordinator URL`.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use cli::{
    exit::{Exit, Signal, Signals},
    priority,
    terminal::{StatusBar, TerminalOptions, eprint_line, start_log},
    threads::{default_name, host_name},
};
use common::run::WorkerId;
use proto::connect::BadAddress;
use worker::config::{Coordinator, SpoolChoice, WorkerConfig};

use super::{fail, options::Serve};

pub(crate) async fn run(arguments: &Serve, terminal: TerminalOptions) -> ExitCode {
    let mut config = match config(arguments) {
        Ok(config) => config,
        Err(error) => return fail(Exit::Usage, error),
    };
    start_log(arguments.log_format, terminal, None);
    if arguments.idle_priority {
        // Threads that start later inherit the priority.
        for refused in priority::lower_session() {
            tracing::warn!("--idle-priority: {refused}");
        }
    }
    if let Coordinator::Remote(address) = &config.coordinator
        && address.is_unprotected()
    {
        tracing::warn!("--insecure: traffic to {address} is unencrypted and unauthenticated");
    }
    config.status_bar = StatusBar::message_only();
    match serve(config, arguments.drain_after).await {
        Ok(exit) => exit.into(),
        Err(error) => fail(Exit::Error, error),
    }
}

fn config(arguments: &Serve) -> Result<WorkerConfig, String> {
    let coordinator = arguments.connection.endpoint("worker").map_err(|error| match error {
        BadAddress::NotInDefaultDirectory => {
            format!("{error}. Without a coordinator: worker count --n 16")
        }
        _ => error.to_string(),
    })?;
    let config = WorkerConfig {
        coordinator: Coordinator::Remote(coordinator),
        budget: arguments.resources.budget(),
        name: arguments.name.clone().unwrap_or_else(|| default_name(&host_name())),
        devices: arguments.resources.device.open(arguments.resources.device_memory)?,
        spool: arguments.spool.clone().map_or(SpoolChoice::Default, SpoolChoice::Directory),
        id: WorkerId(0),
        drain_limit: arguments.drain_limit,
        idle_timeout: arguments.idle_timeout.0,
        rules: arguments.rules.clone(),
        status_bar: None,
    };
    config.budget.check_memory().map_err(|error| error.to_string())?;
    Ok(config)
}

async fn serve(
    config: WorkerConfig,
    drain_after: Option<Duration>,
) -> Result<Exit, Box<dyn std::error::Error>> {
    let mut signals = Signals::new()?;
    let interrupted = AtomicBool::new(false);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let watch = async {
        tokio::select! {
            signal = signals.next() => interrupted.store(signal == Signal::Interrupt, Relaxed),
            () = after(drain_after) => tracing::info!("--drain-after has expired"),
        }
        // Fails only if the worker has ended.
        let _ = stop.send(());
        // Batch systems repeat SIGTERM, so a draining worker ignores it. Ctrl-C stops it immediately.
        while signals.next_distinct().await == Signal::Terminate {}
        eprint_line(
            "stopped immediately; the next worker that uses this spool submits the results in it",
        );
        std::process::exit(Exit::Interrupted as i32)
    };
    let shutdown = async {
        // An error means that the sender is gone.
        let _ = stopped.await;
    };
    let result = tokio::select! {
        result = worker::run(config, shutdown) => result,
        never = watch => never,
    };
    result?;
    Ok(if interrupted.load(Relaxed) { Exit::Interrupted } else { Exit::Success })
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
