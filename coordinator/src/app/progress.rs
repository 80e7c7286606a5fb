//! How far a run is: a bar on a terminal, a log line now and then elsewhere.

use std::time::{Duration, Instant};

use tracing::info;
use worker::terminal::Drawn;

use crate::{
    driver::StatusReport,
    text::{percent, plural, span, thousands},
};

/// Between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Shows the progress of one run.
pub(super) struct Progress {
    bar: Option<Drawn>,
    logged: Instant,
    logged_done: u64,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            bar: Drawn::bar(),
            logged: Instant::now(),
            logged_done: 0,
        }
    }

    pub(super) fn show(&mut self, report: &StatusReport) {
        let status = &report.status;
        if let Some(bar) = &self.bar {
            bar.show(status.fraction_done, words(report));
        } else if self.logged.elapsed() >= LOG_EVERY && status.tasks.done != self.logged_done {
            self.logged = Instant::now();
            self.logged_done = status.tasks.done;
            info!("{}, {}", percent(status.fraction_done), words(report));
        }
    }
}

fn words(report: &StatusReport) -> String {
    let status = &report.status;
    if report.outcome.is_some() {
        return "done".to_owned();
    }
    if let Some(part) = report.finishing {
        return format!(
            "all tasks done, counting the symmetric solutions: {:.1} %",
            part * 100.0
        );
    }
    // What matters most comes first: a terminal may not show it all.
    let mut words = format!(
        "{} of {}",
        thousands(status.tasks.done.into()),
        plural(status.tasks.total, "task"),
    );
    if let Some(seconds) = status.eta_seconds {
        words += &format!(", {} left", span(seconds));
    }
    if status.solutions_per_second > 0.0 {
        words += &format!(", {:.2e} solutions a second", status.solutions_per_second);
    }
    words += &format!(", {}", plural(status.workers.len(), "worker"));
    if let Some(estimate) = status.estimate {
        words += &format!(", about {} solutions", thousands(estimate.solutions));
    }
    if !status.reason.is_empty() {
        words += &format!(", {}", status.reason);
    }
    words
}
