//! `worker --join STRING`, `worker --coordinator URL`.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::sync::watch;
use worker::{
    Glance,
    config::{Address, BadAddress, SpoolChoice, TlsFiles, WorkerConfig, join_string},
    log, priority,
    signals::{Signal, Signals},
    terminal::{Drawn, Manner},
};

use crate::{
    INTERRUPTED, USAGE,
    cli::Serve,
    say::{fail, tell},
};

pub(crate) fn run(arguments: &Serve, manner: Manner) -> ExitCode {
    let mut config = match config(arguments) {
        Ok(config) => config,
        Err(error) => return fail(USAGE, error),
    };
    log::start(arguments.log_format, manner);
    if arguments.manners.idle_priority {
        // Before there are other threads, which inherit it.
        for refused in priority::lower() {
            tracing::warn!("--idle-priority: {refused}");
        }
    }
    if config.coordinator.is_open_to_others() {
        tracing::warn!(
            "--insecure: whoever is between here and {} reads and changes what is said",
            config.coordinator
        );
    }
    let line = Drawn::words().map(|line| {
        let (told, glances) = watch::channel(None);
        config.glances = Some(told);
        (line, glances)
    });
    match serve(config, arguments.drain_after, line) {
        Ok(code) => code,
        Err(error) => fail(1, error),
    }
}

/// Most people have a line to paste, and forgot it: clap would name the other way alone.
const NOWHERE: &str = "where is the coordinator? It prints the line to paste here, such as \
    QUEENS_JOIN=queens1-… worker; on its own machine without one: \
    worker --coordinator http://127.0.0.1:7171. Without a coordinator: worker count --n 16";

fn config(arguments: &Serve) -> Result<WorkerConfig, String> {
    let coordinator = match (&arguments.join, &arguments.coordinator) {
        // What cannot be used is not shown: it may be a secret with a typing error.
        (Some(join), _) => join_string(join)
            .map(Address::joined)
            .map_err(|error| format!("--join: {error}"))?,
        (None, Some(url)) => address(url, arguments)?,
        (None, None) => return Err(NOWHERE.to_owned()),
    };
    let config = WorkerConfig {
        threads: arguments.resources.threads(),
        memory: arguments.resources.memory(),
        crews: arguments.resources.crews,
        kernel: arguments.resources.kernel,
        name: arguments.name.clone(),
        spool: arguments
            .spool
            .clone()
            .map_or(SpoolChoice::Usual, SpoolChoice::Directory),
        drain_limit: arguments.drain_limit,
        idle_timeout: arguments.idle_timeout.0,
        rules: arguments.manners.rules(),
        ..WorkerConfig::new(coordinator)
    };
    config.check_memory().map_err(|error| error.to_string())?;
    Ok(config)
}

fn address(url: &str, arguments: &Serve) -> Result<Address, String> {
    let files = TlsFiles::of(
        arguments.tls_ca.as_ref(),
        arguments.tls_cert.as_ref(),
        arguments.tls_key.as_ref(),
    );
    let address = match &files {
        Some(files) => Address::certified(url, files),
        None => Address::new(url, arguments.insecure),
    };
    address.map_err(|error| match error {
        BadAddress::File(why) => why,
        _ => format!("--coordinator {error}"),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn serve(
    config: WorkerConfig,
    drain_after: Option<Duration>,
    line: Option<StatusLine>,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut signals = Signals::new()?;
    let interrupted = AtomicBool::new(false);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let watch = async {
        tokio::select! {
            signal = signals.next() => interrupted.store(signal == Signal::Interrupt, Relaxed),
            () = after(drain_after) => tracing::info!("the time given by --drain-after is over"),
        }
        // Nobody listens only if the worker has ended.
        let _ = stop.send(());
        // Batch systems say SIGTERM to a job's shell, which passes it on, to its processes, and again
        // at the end of a grace period: a worker that is draining knows. Ctrl-C is a person in a hurry.
        while signals.next_apart().await == Signal::Terminate {}
        tell("stopped at once; results in the spool are handed in by the next worker there");
        std::process::exit(i32::from(INTERRUPTED))
    };
    let shutdown = async {
        // An error means that the sender is gone, and with it everybody who could say more.
        let _ = stopped.await;
    };
    let result = tokio::select! {
        result = worker::run(config, shutdown) => result,
        never = watch => never,
        never = keep(line) => never,
    };
    result?;
    Ok(if interrupted.load(Relaxed) {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

/// What is drawn, and what it is drawn from.
type StatusLine = (Drawn, watch::Receiver<Option<Glance>>);

/// Keeps the status line, if there is one, as the worker is.
async fn keep<T>(line: Option<StatusLine>) -> T {
    if let Some((line, mut glances)) = line {
        while glances.changed().await.is_ok() {
            let words = glances
                .borrow_and_update()
                .as_ref()
                .map(|glance| glance.line(Instant::now()));
            if let Some(words) = words {
                line.show(0.0, words);
            }
        }
    }
    std::future::pending().await
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
