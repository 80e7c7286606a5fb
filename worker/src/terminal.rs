//! How a program behaves on a terminal: what it says unasked, in which colours, and the one line that
//! it draws there, for which everything else steps aside.

use std::{
    env,
    io::{self, IsTerminal as _, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use clap::{Args, ValueEnum};
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// How often a line is drawn in a second at most.
const HERTZ: u8 = 4;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Colours {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Also where nobody may see them.
    Always,
    /// Nowhere.
    Never,
}

/// What every program lets its user choose.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Manner {
    /// Say nothing but warnings, errors and what was asked for: no progress, no notes
    #[arg(long, global = true)]
    pub quiet: bool,

    /// Colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: Colours,
}

/// Whether notes and progress are unwanted.
static QUIET: AtomicBool = AtomicBool::new(false);

/// The line that is drawn on the terminal.
static LINE: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn drawn() -> MutexGuard<'static, Option<ProgressBar>> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Manner {
    /// From now on [`note`] and [`Drawn`] keep to it.
    pub fn keep(self) {
        QUIET.store(self.quiet, Relaxed);
    }

    /// Whether to write colours to a stream that is a terminal or is none.
    pub fn colours(self, is_terminal: bool) -> bool {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self.color {
            Colours::Auto => is_terminal && !unwanted,
            Colours::Always => true,
            Colours::Never => false,
        }
    }

    /// What is logged where `RUST_LOG` does not say.
    pub fn log_level(self) -> Level {
        if self.quiet { Level::WARN } else { Level::INFO }
    }
}

/// Says a line on standard error that nobody asked for, as far as anybody wants to hear.
pub fn note(line: &str) {
    if !QUIET.load(Relaxed) {
        aside(|| {
            let _ = writeln!(io::stderr(), "{line}");
        });
    }
}

/// Lets `write` write to the terminal where the line is drawn.
pub fn aside<T>(write: impl FnOnce() -> T) -> T {
    let line = drawn().clone();
    match line {
        Some(line) => line.suspend(write),
        None => write(),
    }
}

/// The last line of the terminal, for as long as this lives. A program draws one at a time.
#[derive(Debug)]
pub struct Drawn(ProgressBar);

/// Steps of a bar.
const STEPS: u64 = 10_000;

/// Stderr but for its last columns, which stay free: the terminal writes `^C` there, and a line that has
/// wrapped cannot be drawn over.
#[derive(Debug)]
struct Narrower(Term);

impl Narrower {
    const FREE: u16 = 4;
}

impl TermLike for Narrower {
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

impl Drawn {
    /// A bar, the percentage and words, which are cut off where the terminal ends. `None` where stderr is no terminal, or nothing is to be said.
    pub fn bar() -> Option<Self> {
        Self::new("{bar:20} {percent_precise:>7} % {wide_msg}")
    }

    /// Words alone.
    pub fn words() -> Option<Self> {
        Self::new("{wide_msg}")
    }

    fn new(template: &str) -> Option<Self> {
        if QUIET.load(Relaxed) || !io::stderr().is_terminal() {
            return None;
        }
        let target = ProgressDrawTarget::term_like_with_hz(
            Box::new(Narrower(Term::buffered_stderr())),
            HERTZ,
        );
        let style = ProgressStyle::with_template(template).expect("a constant template");
        let style = style.progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(Some(STEPS), target).with_style(style);
        *drawn() = Some(bar.clone());
        Some(Self(bar))
    }

    /// `part`, 0 to 1, is done, and this is said of it.
    pub fn show(&self, part: f64, words: String) {
        // Within the steps.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        self.0
            .set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.0.set_message(words);
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        *drawn() = None;
        self.0.finish_and_clear();
    }
}

/// Writes log lines to stderr above the line that is drawn there.
#[derive(Clone, Copy, Debug)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nobody can be told that nobody can be told.
        let _ = aside(|| io::stderr().write_all(bytes));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_where_they_are_wanted() {
        let manner = |color| Manner {
            quiet: false,
            color,
        };
        for is_terminal in [true, false] {
            assert!(manner(Colours::Always).colours(is_terminal));
            assert!(!manner(Colours::Never).colours(is_terminal));
        }
        assert!(!manner(Colours::Auto).colours(false));
    }
}
