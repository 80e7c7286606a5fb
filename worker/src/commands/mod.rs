//! The commands of the program and the code that they share.
//!
//! Output that cannot be written, such as into a closed pipe, never causes a panic.

pub(crate) mod count;
pub(crate) mod estimate;
pub(crate) mod options;
pub(crate) mod package;
pub(crate) mod serve;

use std::{
    fmt, io,
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use cli::{
    environment::is_typed,
    exit::{Exit, Signals},
    terminal::{self, StatusBar, eprint_info, eprint_line},
    threads::TooLittleMemory,
};
use common::{
    board::Board,
    choice::{BadChoice, Choice, MethodChoice, RowsLayout, choose},
    compute::kernel::Kernel,
    text::span,
};
use serde::Serialize;
use tokio::sync::oneshot;
use worker::{config::ComputeBudget, devices, spool::stop::stop};

/// Prints the supported kernels.
pub(crate) fn list_kernels() -> ExitCode {
    finish(Kernel::available().iter().try_for_each(|kernel| print(&kernel.to_string())))
}

/// Prints the OpenCL devices with their memory and driver.
pub(crate) fn list_devices() -> ExitCode {
    let mut printed = Ok(());
    for (index, description) in accelerator::devices().into_iter().enumerate() {
        let line = match description {
            Err(error) => format!("{index}: {error}"),
            Ok(description) => {
                let tested = match devices::tested(index, None) {
                    Ok(_) => "passes the self-test".to_owned(),
                    Err(error) => format!("fails: {error}"),
                };
                format!("{index}: {description}, {tested}")
            }
        };
        printed = printed.and_then(|()| print(&line));
    }
    finish(printed)
}

pub(crate) async fn stop_workers(arguments: options::Stop) -> ExitCode {
    // The environment may name this machine's worker and its spool.
    let by_name = is_typed("name");
    if by_name && is_typed("spool") {
        return fail(Exit::Usage, "give --spool or --name, not both");
    }
    let spool = arguments.spool.filter(|_| !by_name);
    match stop(spool, arguments.name.as_deref()).await {
        Ok(stopped) => finish(stopped.iter().try_for_each(|spool| {
            print(&format!("stopped: the worker with spool {}", spool.display()))
        })),
        Err(error) => fail(Exit::Error, error),
    }
}

/// Reason why a board cannot be counted with these resources.
type BadRequest = Box<dyn std::error::Error>;

/// Chooses method and layout for a board.
fn choice(
    budget: &ComputeBudget,
    board: Board,
    method: MethodChoice,
    layout: Option<RowsLayout>,
) -> Result<Choice, BadRequest> {
    choose(board, method, layout, Some(budget.machine())).map_err(|bad| match bad {
        BadChoice::Memory { least } => {
            TooLittleMemory::new(board, budget.memory, budget.threads, least).into()
        }
        BadChoice::LayoutOfFrames => bad.into(),
    })
}

/// Resolves at the first Ctrl-C or SIGTERM; the second exits immediately.
fn interruption() -> impl Future<Output = ()> {
    let (stop, stopped) = oneshot::channel();
    match Signals::new() {
        Ok(mut signals) => drop(tokio::spawn(async move {
            signals.next().await;
            // The command may have ended.
            let _ = stop.send(());
            signals.next_distinct().await;
            std::process::exit(Exit::Interrupted as i32);
        })),
        Err(error) => {
            eprint_line(&format!(
                "warning: cannot handle Ctrl-C: {error}; it will end the program without a result"
            ));
        }
    }
    async {
        if stopped.await.is_err() {
            std::future::pending().await
        }
    }
}

/// Prints a line to standard output.
fn print(line: &str) -> io::Result<()> {
    ignore_closed_pipe(terminal::print(line))
}

/// Prints a JSON object to standard output.
fn print_json(object: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string(object).map_err(io::Error::other);
    ignore_closed_pipe(json.and_then(|json| terminal::print_json(&json)))
}

/// Turns the error of a closed pipe (`| head`) into success.
fn ignore_closed_pipe(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Returns the exit code of a command whose last step was its output.
fn finish(printed: io::Result<()>) -> ExitCode {
    match printed {
        Ok(()) => Exit::Success.into(),
        Err(error) => fail(Exit::Error, format!("cannot write to standard output: {error}")),
    }
}

fn fail(exit: Exit, error: impl fmt::Display) -> ExitCode {
    eprint_line(&format!("error: {error}"));
    exit.into()
}

/// Delay before a step is announced.
const STEP_DELAY: Duration = Duration::from_secs(1);

const FIRST_INTERVAL: Duration = Duration::from_secs(5);
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Runs a step without progress reports, and announces it if it takes long.
fn step<T>(what: &str, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (working, done) = channel::<()>();
        scope.spawn(move || {
            if done.recv_timeout(STEP_DELAY) == Err(RecvTimeoutError::Timeout) {
                eprint_info(&format!("{what} …"));
            }
        });
        let result = work();
        drop(working);
        result
    })
}

/// Progress of a count on standard error, cleared on drop.
///
/// A bar on a terminal, otherwise lines at growing intervals.
struct Progress {
    bar: Option<StatusBar>,
    started: Instant,
    interval: Duration,
    next_line: Instant,
    /// Cost of the count in core seconds of the reference machine, if known.
    core_seconds: Option<f64>,
}

impl Progress {
    fn start(core_seconds: Option<f64>) -> Self {
        Self::new(StatusBar::bar(), core_seconds)
    }

    fn new(bar: Option<StatusBar>, core_seconds: Option<f64>) -> Self {
        let started = Instant::now();
        let (interval, next_line) = (FIRST_INTERVAL, started + FIRST_INTERVAL);
        Self { bar, started, interval, next_line, core_seconds }
    }

    /// Shows that `part`, 0 to 1, is finished.
    fn show(&mut self, part: f64) {
        let now = Instant::now();
        match &self.bar {
            Some(bar) => bar.show(part, self.speed(part, now)),
            None => self.line(part, now).iter().for_each(|line| eprint_info(line)),
        }
    }

    /// Formats the speed and the remaining time.
    fn speed(&self, part: f64, now: Instant) -> String {
        let so_far = now - self.started;
        let Some(remaining) = remaining(part, so_far) else {
            return "started".to_owned();
        };
        let speed = self.core_seconds.map(|total| {
            let cores = part * total / so_far.as_secs_f64().max(1e-3);
            format!("at {cores:.2} reference cores, ")
        });
        format!("{}{remaining} left", speed.unwrap_or_default())
    }

    /// Formats the next line, if it is due; the intervals grow.
    fn line(&mut self, part: f64, now: Instant) -> Option<String> {
        if now < self.next_line {
            return None;
        }
        self.interval = (self.interval * 2).min(MAX_INTERVAL);
        self.next_line = now + self.interval;
        let so_far = now - self.started;
        let remaining = remaining(part, so_far).map(|time| format!(", about {time} left"));
        let remaining = remaining.unwrap_or_default();
        Some(format!("{:.1} % after {}{remaining}", part * 100.0, span(so_far.as_secs_f64())))
    }
}

/// Returns the remaining time at the speed so far.
fn remaining(part: f64, so_far: Duration) -> Option<String> {
    (part > 0.0).then(|| span(so_far.as_secs_f64() * (1.0 - part) / part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_speed_and_time_left() {
        let progress = Progress::new(None, Some(400.0));
        let at = |part| progress.speed(part, progress.started + Duration::from_secs(50));
        assert_eq!(at(0.0), "started");
        assert_eq!(at(0.25), "at 2.00 reference cores, 2 min 30 s left");
    }

    #[test]
    fn lines_come_at_growing_intervals() {
        let mut progress = Progress::new(None, None);
        let started = progress.started;
        let mut due = Vec::new();
        for second in 0..200 {
            let line = progress.line(0.25, started + Duration::from_secs(second));
            due.extend(line.map(|line| (second, line)));
        }
        let seconds: Vec<_> = due.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [5, 15, 35, 75, 135, 195]);
        assert_eq!(due[0].1, "25.0 % after 5.0 s, about 15.0 s left");
        let mut unstarted = Progress::new(None, None);
        let line = unstarted.line(0.0, unstarted.started + FIRST_INTERVAL);
        assert_eq!(line.as_deref(), Some("0.0 % after 5.0 s"));
    }
}
