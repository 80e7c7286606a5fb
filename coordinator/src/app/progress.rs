//! How far a run is: a bar on a terminal, a log line now and then elsewhere.

use std::{
    io::{self, IsTerminal as _, Write},
    sync::OnceLock,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing::info;
use tracing_subscriber::fmt::MakeWriter;

use crate::{
    driver::StatusReport,
    text::{plural, span, thousands},
};

/// Between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Steps of the bar.
const STEPS: u64 = 10_000;

/// The bar that log lines have to step aside for.
static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// Shows the progress of one run.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    logged: Instant,
    logged_done: u64,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(4);
            // The words are cut where the terminal ends: a line that wraps cannot be drawn over.
            let style = ProgressStyle::with_template("{bar:20} {percent_precise:>7} % {wide_msg}")
                .expect("a constant template")
                .progress_chars("=> ");
            let bar = ProgressBar::with_draw_target(Some(STEPS), target).with_style(style);
            BAR.get_or_init(|| bar.clone());
            bar
        });
        Self {
            bar,
            logged: Instant::now(),
            logged_done: 0,
        }
    }

    pub(super) fn show(&mut self, report: &StatusReport) {
        let status = &report.status;
        if let Some(bar) = &self.bar {
            // From 0 to 1, so within the steps.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss
            )]
            bar.set_position((status.fraction_done.clamp(0.0, 1.0) * STEPS as f64) as u64);
            bar.set_message(words(report));
        } else if self.logged.elapsed() >= LOG_EVERY && status.tasks.done != self.logged_done {
            self.logged = Instant::now();
            self.logged_done = status.tasks.done;
            info!("{:.2} %, {}", status.fraction_done * 100.0, words(report));
        }
    }

    /// Lets `print` write to the terminal where the bar is.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn words(report: &StatusReport) -> String {
    let status = &report.status;
    if report.outcome.is_some() {
        return "done".to_owned();
    }
    if report.finishing {
        return "all tasks done, counting the symmetric solutions".to_owned();
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
    words += &format!(", {}", plural(status.workers.len(), "worker"));
    if let Some(estimate) = status.estimate {
        words += &format!(", about {} solutions", thousands(estimate.solutions));
    }
    if !status.reason.is_empty() {
        words += &format!(", {}", status.reason);
    }
    words
}

/// Writes log lines to stderr above the bar.
#[derive(Clone, Copy, Debug)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().write_all(bytes);
        // Nobody can be told that nobody can be told.
        let _ = match BAR.get() {
            Some(bar) => bar.suspend(write),
            None => write(),
        };
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}
