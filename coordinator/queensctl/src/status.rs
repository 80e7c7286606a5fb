//! `queensctl status` and `queensctl wait`.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use cli::{
    duration::{duration, format_duration},
    exit::Exit,
    terminal::{TerminalOptions, eprint_info},
};
use common::messages::run::RunId;
use proto::v1::{self, GetStatusRequest, RunState};
use tokio::time::timeout;
use view::{
    RunSelector,
    text::{cancelled, eprint_line, percent, plural, span, thousands},
};

use super::{
    client::Connection,
    follow::{RunUpdate, Style, ended, follow, show_status},
    output::print,
    watch,
};

#[derive(Clone, Debug, Args)]
pub(super) struct StatusOptions {
    /// Run: at least four digits of its id, N=22 for the newest of that board, or last [default:
    /// the one served first]
    run: Option<RunSelector>,

    /// Follow the run until it is finished: on a full screen (? shows the keys), or with one line per
    /// minute without a terminal
    #[arg(long)]
    watch: bool,

    /// Show every check of a finished run, and its workers
    #[arg(long)]
    verbose: bool,

    /// Print one JSON object; with --watch one per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct WaitOptions {
    /// Run: at least four digits of its id (see `queensctl runs`), N=22 for the newest of that
    /// board, or last
    run: RunSelector,

    /// Stop waiting after this time, such as 30s or 2h, with exit code 124 [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_wait: Option<Duration>,

    /// Show every check
    #[arg(long)]
    verbose: bool,

    /// Print the result as a JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn status(
    connection: &Connection,
    terminal: TerminalOptions,
    options: &StatusOptions,
) -> anyhow::Result<Exit> {
    let style = Style { json: options.json, verbose: options.verbose };
    let (mut client, run) = connection.connect_to(options.run.as_ref()).await?;
    if options.watch {
        if !options.json
            && let Some(screen) = watch::Screen::open()
        {
            let colors = terminal.colors(&std::io::stdout());
            return watch::watch(connection, run, screen, (colors, style)).await;
        }
        let mut lines = Lines::new(style);
        return follow(connection, (client, run), &mut |update| lines.show(update)).await;
    }
    let request = GetStatusRequest { run };
    let status = connection.ask(client.get_status(request)).await?;
    show_status(&status, style)?;
    Ok(Exit::Success)
}

pub(super) async fn wait(connection: &Connection, options: &WaitOptions) -> anyhow::Result<Exit> {
    let (client, run) = connection.connect_to_run(&options.run).await?;
    let style = Style { json: options.json, verbose: options.verbose };
    let mut is_noted = false;
    let mut show = |update: RunUpdate| {
        let status = match update {
            RunUpdate::Status(status) => status,
            RunUpdate::Disconnected(line) => {
                eprint_line(&line);
                return Ok(());
            }
        };
        if ended(&status).is_some() {
            return show_end(&status, style);
        }
        if !is_noted {
            is_noted = true;
            eprint_info(&format!(
                "waiting for run {}: {} done",
                RunId(run),
                percent(status.fraction_done)
            ));
        }
        Ok(())
    };
    let following = follow(connection, (client, Some(run)), &mut show);
    match options.max_wait {
        Some(limit) => timeout(limit, following).await.unwrap_or_else(|_| {
            let limit = format_duration(limit);
            eprint_line(&format!(
                "error: run {} has not finished within {limit} (--max-wait)",
                RunId(run)
            ));
            Ok(Exit::TimedOut)
        }),
        None => following.await,
    }
}

/// Prints the result of a finished run; fails if the run was cancelled.
fn show_end(status: &v1::Status, style: Style) -> anyhow::Result<()> {
    match status.result.is_some() || style.json {
        true => show_status(status, style),
        false => {
            let run = status.run.clone().unwrap_or_default();
            Err(anyhow!("{}", cancelled(RunId(run.run), Some(&run.cancelled_by))))
        }
    }
}

/// The output of `--watch` without a terminal.
/// One line per minute and per change of state, then the result; with `--json` one object per change.
struct Lines {
    style: Style,
    last: Option<v1::Status>,
    /// Time and state of the last line.
    written: Option<(Instant, RunState)>,
}

/// Time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

impl Lines {
    fn new(style: Style) -> Self {
        Self { style, last: None, written: None }
    }

    fn show(&mut self, update: RunUpdate) -> anyhow::Result<()> {
        match update {
            RunUpdate::Status(status) if self.style.json => match self.is_change(&status) {
                true => show_status(&status, self.style),
                false => Ok(()),
            },
            RunUpdate::Status(status) if ended(&status).is_some() => show_end(&status, self.style),
            RunUpdate::Status(status) => self.show_line(&status),
            RunUpdate::Disconnected(line) => {
                eprint_line(&line);
                Ok(())
            }
        }
    }

    fn show_line(&mut self, status: &v1::Status) -> anyhow::Result<()> {
        let state = status.run.as_ref().map(v1::Run::state).unwrap_or_default();
        let is_due =
            |(at, shown): (Instant, RunState)| shown != state || at.elapsed() >= LINE_INTERVAL;
        if !self.written.is_none_or(is_due) {
            return Ok(());
        }
        self.written = Some((Instant::now(), state));
        let run = status.run.clone().unwrap_or_default();
        let eta = status.eta_seconds.map_or_else(|| "not known yet".to_owned(), span);
        print(&format!(
            "N = {}: {}, {} done, {} of {}, ETA {eta}",
            run.spec.unwrap_or_default().n,
            state,
            percent(status.fraction_done),
            thousands(status.tasks_done.into()),
            plural(status.tasks_total, "task"),
        ))?;
        Ok(())
    }

    /// Returns whether something changed since the last call.
    fn is_change(&mut self, status: &v1::Status) -> bool {
        let seen = without_clocks(status);
        let is_change = self.last.as_ref() != Some(&seen);
        self.last = Some(seen);
        is_change
    }
}

/// Returns a status without times and averages, which change all the time.
fn without_clocks(status: &v1::Status) -> v1::Status {
    let mut seen = status.clone();
    seen.eta_seconds = None;
    seen.solutions_per_second = 0.0;
    if let Some(coordinator) = &mut seen.coordinator {
        coordinator.archive_behind_ms = None;
        coordinator.disk_free_bytes = None;
    }
    (seen.counting_seconds, seen.waiting_seconds) = (0.0, 0.0);
    // Rounded as displayed.
    seen.fraction_done = (seen.fraction_done * 1e4).round();
    if let Some(run) = &mut seen.run {
        (run.eta_seconds, run.counting_seconds) = (None, 0.0);
        run.fraction_done = seen.fraction_done;
    }
    for worker in &mut seen.workers {
        worker.last_seen_ms_ago = 0;
        worker.cost_per_second = 0.0;
        worker.current_task_ms = 0;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_not_a_change() {
        let mut lines = Lines::new(Style::default());
        let mut status = v1::Status {
            tasks_total: 10,
            workers: vec![v1::Worker::default()],
            coordinator: Some(v1::Coordinator::default()),
            run: Some(v1::Run::default()),
            ..v1::Status::default()
        };
        assert!(lines.is_change(&status));
        let worker = &mut status.workers[0];
        (worker.last_seen_ms_ago, worker.cost_per_second) = (1000, 5.0);
        (status.counting_seconds, status.waiting_seconds) = (1.0, 2.0);
        (status.solutions_per_second, status.fraction_done) = (7.0, 0.000_01);
        status.eta_seconds = Some(3.0);
        status.run.as_mut().unwrap().counting_seconds = 1.0;
        let coordinator = status.coordinator.as_mut().unwrap();
        (coordinator.archive_behind_ms, coordinator.disk_free_bytes) = (Some(4000), Some(1));
        assert!(!lines.is_change(&status), "only time has passed");
        status.tasks_done = 1;
        assert!(lines.is_change(&status));
        status.workers[0].state = v1::WorkerState::Lost.into();
        assert!(lines.is_change(&status));
        assert!(!lines.is_change(&status));
        status.fraction_done = 0.01;
        assert!(lines.is_change(&status));
    }
}
