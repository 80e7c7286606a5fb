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
use proto::connect::BadAddress;
use worker::config::{Coordinator, SpoolChoice, WorkerConfig};

use super::{
    fail,
    options::{Engine, Serve},
};

pub(crate) async fn run(arguments: &Serve, terminal: TerminalOptions) -> ExitCode {
    let mut config = match config(arguments) {
        Ok(config) => config,
        Err(error) => return fail(Exit::Usage, error),
    };
    begin(&arguments.engine, terminal);
    if let Coordinator::Remote(address) = &config.coordinator
        && address.is_unprotected()
    {
        tracing::warn!("--insecure: traffic to {address} is unencrypted and unauthenticated");
    }
    config.status_bar = StatusBar::message_only();
    match serve(config, arguments.engine.drain_after).await {
        Ok(exit) => exit.into(),
        Err(error) => fail(Exit::Error, error),
    }
}

/// Starts the log and lowers the priority.
pub(crate) fn begin(engine: &Engine, terminal: TerminalOptions) {
    start_log(engine.log_format, terminal, None);
    if engine.idle_priority {
        // Threads that start later inherit the priority.
        for refused in priority::lower_session() {
            tracing::warn!("--idle-priority: {refused}");
        }
    }
}

fn config(arguments: &Serve) -> Result<WorkerConfig, String> {
    let coordinator = arguments.connection.endpoint("worker").map_err(|error| match error {
        BadAddress::NotInDefaultDirectory => {
            format!("{error}. Without a coordinator: worker count --n 16")
        }
        _ => error.to_string(),
    })?;
    let name = arguments.name.clone().unwrap_or_else(|| default_name(&host_name()));
    let config = arguments.engine.config(Coordinator::Remote(coordinator), name)?;
    Ok(WorkerConfig {
        spool: arguments.spool.clone().map_or(SpoolChoice::Default, SpoolChoice::Directory),
        idle_timeout: arguments.idle_timeout.0,
        ..config
    })
}

impl Engine {
    /// Returns the configuration of a worker without a spool that exits as soon as all runs are finished.
    pub(crate) fn config(
        &self,
        coordinator: Coordinator,
        name: String,
    ) -> Result<WorkerConfig, String> {
        let config = WorkerConfig {
            coordinator,
            budget: self.resources.budget(),
            name,
            devices: self.resources.device.open(self.resources.device_memory)?,
            spool: SpoolChoice::Memory,
            drain_limit: self.drain_limit,
            idle_timeout: Some(Duration::ZERO),
            rules: self.rules.clone(),
            status_bar: None,
        };
        config.budget.check_memory().map_err(|error| error.to_string())?;
        Ok(config)
    }
}

/// Runs a worker until it ends or a signal stops it.
pub(crate) async fn serve(
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
