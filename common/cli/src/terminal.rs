//! Terminal output: options, colors, the log, and a status line below other output.

use std::{
    env,
    ffi::OsStr,
    io::{self, IsTerminal, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::environment::variable;
use clap::{Args, ColorChoice, ValueEnum};
use common::text::{Escaped, escaped_json, escaped_lines};
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use tracing::{Level, Subscriber};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Maximum redraws of the status line per second.
const REDRAWS_PER_SECOND: u8 = 4;

/// Output options of every program.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct TerminalOptions {
    /// Suppress progress and informational messages
    #[arg(long, global = true)]
    pub quiet: bool,

    /// Use colors: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: ColorChoice,
}

/// Whether `--quiet` suppresses messages and progress.
static QUIET: AtomicBool = AtomicBool::new(false);

/// The status line on the terminal.
static LINE: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn status_line() -> MutexGuard<'static, Option<ProgressBar>> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TerminalOptions {
    /// Installs the options for [`eprint_info`] and [`StatusBar`].
    pub fn apply(self) {
        QUIET.store(self.quiet, Relaxed);
    }

    /// Returns whether to color a stream.
    pub fn colors(self, stream: &impl IsTerminal) -> bool {
        match self.color {
            ColorChoice::Auto => can_draw(stream) && variable("NO_COLOR").is_none(),
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        }
    }
}

/// Returns whether a stream is a terminal that can move its cursor and show colors.
///
/// All output asks here. On Unix, `TERM` is unset or `dumb` in editors, cron jobs and build systems.
pub fn can_draw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && (cfg!(windows) || term_can_draw(env::var_os("TERM").as_deref()))
}

fn term_can_draw(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Prints lines to standard output, with invisible characters escaped.
pub fn print(text: &str) -> io::Result<()> {
    print_escaped(&escaped_lines(text))
}

/// Prints JSON to standard output, with invisible characters escaped.
pub fn print_json(json: &str) -> io::Result<()> {
    print_escaped(&escaped_json(json))
}

fn print_escaped(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Writes lines to standard error, with invisible characters escaped.
///
/// Ignores errors: stderr may be closed.
pub fn eprint_line(text: &str) {
    let text = escaped_lines(text);
    with_status_line_hidden(|| {
        let _ = writeln!(io::stderr(), "{text}");
    });
}

/// Writes informational lines to standard error, unless `--quiet` is set.
pub fn eprint_info(text: &str) {
    if !QUIET.load(Relaxed) {
        eprint_line(text);
    }
}

/// Calls `write` while the status line is hidden.
pub fn with_status_line_hidden<T>(write: impl FnOnce() -> T) -> T {
    let line = status_line().clone();
    match line {
        Some(line) => line.suspend(write),
        None => write(),
    }
}

/// The process's status line at the bottom of the terminal; removed on drop.
#[derive(Debug)]
pub struct StatusBar(ProgressBar);

/// Resolution of the progress bar.
const STEPS: u64 = 10_000;

/// Standard error with a margin for `^C`; a wrapped line could not be redrawn.
#[derive(Debug)]
struct MarginTerm(Term);

impl MarginTerm {
    const FREE: u16 = 4;
}

impl TermLike for MarginTerm {
    fn width(&self) -> u16 {
        self.0.size().1.saturating_sub(Self::FREE).max(1)
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n)
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n)
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n)
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n)
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.0.write_line(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

impl StatusBar {
    /// Creates a progress bar with a percentage and a message.
    ///
    /// `None` if stderr is not a terminal or `--quiet` is set.
    pub fn bar() -> Option<Self> {
        Self::new("{bar:20} {percent_precise:>7} % {wide_msg}")
    }

    /// Creates a status line without a bar; `None` as for [`StatusBar::bar`].
    pub fn message_only() -> Option<Self> {
        Self::new("{wide_msg}")
    }

    fn new(template: &str) -> Option<Self> {
        if QUIET.load(Relaxed) || !can_draw(&io::stderr()) {
            return None;
        }
        let target = ProgressDrawTarget::term_like_with_hz(
            Box::new(MarginTerm(Term::buffered_stderr())),
            REDRAWS_PER_SECOND,
        );
        let style = ProgressStyle::with_template(template).expect("a constant template");
        let style = style.progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(Some(STEPS), target).with_style(style);
        *status_line() = Some(bar.clone());
        Some(Self(bar))
    }

    /// Shows the completed fraction and a message.
    pub fn show(&self, part: f64, message: String) {
        // At most `STEPS`.
        #[expect(clippy::cast_possible_truncation)]
        self.0.set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.0.set_message(Escaped(&message).to_string());
    }
}

impl Drop for StatusBar {
    fn drop(&mut self) {
        *status_line() = None;
        self.0.finish_and_clear();
    }
}

/// The writer of log lines to standard error, above the status line.
pub(crate) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An error could not be reported either.
        let _ = with_status_line_hidden(|| io::stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Installs the logger: levels from `RUST_LOG`, or else from `terminal`, and only warnings of
/// the part of the program `brief`.
///
/// Lines that cannot be written are lost silently: an error message would go to the same stream.
///
/// # Panics
/// If called twice.
pub fn start_log(format: LogFormat, terminal: TerminalOptions, brief: Option<&'static str>) {
    let levels = variable("RUST_LOG");
    let targets = levels.as_deref().and_then(log_levels);
    if let (Some(levels), None) = (&levels, &targets) {
        eprint_line(&format!(
            "warning: invalid RUST_LOG '{}': expected error, warn, info, debug, trace or off, or \
             TARGET=LEVEL, separated by commas; the default is used",
            levels.display()
        ));
    }
    let targets = targets.unwrap_or_else(|| {
        let level = if terminal.quiet { Level::WARN } else { Level::INFO };
        let limits = Targets::new().with_default(level);
        let limits = limits.with_targets(brief.map(|part| (part, Level::WARN)));
        // The task database logs errors that it also returns.
        limits.with_target("sled", LevelFilter::OFF)
    });
    // `targets` filters before this level.
    let log = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(|| LogWriter)
        .with_target(false)
        .log_internal_errors(false);
    match format {
        LogFormat::Text => {
            filtered(log.with_ansi(terminal.colors(&io::stderr())).finish(), targets).init()
        }
        LogFormat::Json => filtered(log.json().flatten_event(true).finish(), targets).init(),
    }
}

/// Limits a log to `targets`, and to messages without secrets.
///
/// From `debug` on, the driver of PostgreSQL logs each statement with its values: keys, tokens and join strings.
fn filtered(log: impl Subscriber + Send + Sync, targets: Targets) -> impl Subscriber + Send + Sync {
    let without_values = Targets::new().with_default(LevelFilter::TRACE);
    log.with(targets).with(without_values.with_target("tokio_postgres", LevelFilter::INFO))
}

/// Parses levels; `None` if one is invalid.
///
/// A word that is not a level would select the log of a program's part with this name, and no other.
fn log_levels(levels: &OsStr) -> Option<Targets> {
    let levels = levels.to_str()?;
    let is_valid = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    levels.split(',').all(is_valid).then(|| levels.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_follow_the_option_and_the_terminal() {
        let terminal = |color| TerminalOptions { quiet: false, color };
        let file = std::fs::File::open("/dev/null").expect("a file that is not a terminal");
        assert!(terminal(ColorChoice::Always).colors(&file));
        assert!(!terminal(ColorChoice::Never).colors(&file));
        assert!(!terminal(ColorChoice::Auto).colors(&file));
    }

    #[test]
    fn a_dumb_terminal_is_not_drawn_on() {
        for (term, draws) in
            [(Some("xterm"), true), (Some("dumb"), false), (Some(""), false), (None, false)]
        {
            assert_eq!(term_can_draw(term.map(OsStr::new)), draws, "{term:?}");
        }
    }

    #[test]
    fn invalid_log_levels_are_detected() {
        for valid in ["info", "WARN", "off", "warn,scheduler=debug", "info, store=trace"] {
            assert!(log_levels(OsStr::new(valid)).is_some(), "{valid}");
        }
        for bad in ["warning", "inf", "info,verbose", "scheduler=loud", "debug;info"] {
            assert!(log_levels(OsStr::new(bad)).is_none(), "{bad}");
        }
    }

    #[test]
    fn no_level_shows_the_values_of_statements() {
        for (levels, messages) in [
            ("trace", true),
            ("debug", true),
            ("tokio_postgres=trace", true),
            ("info,tokio_postgres::query=debug", true),
            ("warn,store=debug", false),
        ] {
            let targets = log_levels(OsStr::new(levels)).expect(levels);
            let log = filtered(tracing_subscriber::registry(), targets);
            let (values, others) = tracing::subscriber::with_default(log, || {
                (
                    tracing::enabled!(target: "tokio_postgres::query", Level::DEBUG),
                    tracing::enabled!(target: "tokio_postgres::connection", Level::INFO),
                )
            });
            assert_eq!((values, others), (false, messages), "{levels}");
        }
    }
}
