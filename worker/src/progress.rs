//! Progress of work that takes a while, on standard error: a bar on a terminal, now and then a line
//! elsewhere.

use std::{
    io::{self, IsTerminal},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::say::tell;

/// A step that takes longer says what it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two lines: at first, and at most.
const LINES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// Does a step that cannot tell how far it is.
pub(crate) fn step<T>(what: &str, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (working, done) = channel::<()>();
        scope.spawn(move || {
            if done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                tell(&format!("{what} …"));
            }
        });
        let result = work();
        drop(working);
        result
    })
}

/// How far a count is.
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines(Lines),
}

impl Progress {
    pub(crate) fn start() -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines(Lines::start(Instant::now()));
        }
        let style =
            ProgressStyle::with_template("{wide_bar} {percent_precise} % {elapsed} ({eta} left)");
        let bar = ProgressBar::new(1000);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self::Bar(bar)
    }

    /// `part`, 0 to 1, of the cost is done.
    pub(crate) fn show(&mut self, part: f64) {
        match self {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to 1000"
            )]
            Self::Bar(bar) => bar.set_position((part * 1000.0) as u64),
            Self::Lines(lines) => {
                if let Some(line) = lines.line(part, Instant::now()) {
                    tell(&line);
                }
            }
        }
    }

    pub(crate) fn finish(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Lines at growing intervals.
pub(crate) struct Lines {
    started: Instant,
    every: Duration,
    next: Instant,
}

impl Lines {
    fn start(now: Instant) -> Self {
        Self {
            started: now,
            every: LINES.0,
            next: now + LINES.0,
        }
    }

    /// The line that is due.
    fn line(&mut self, part: f64, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.every = (self.every * 2).min(LINES.1);
        self.next = now + self.every;
        let so_far = now - self.started;
        let mut line = format!("{:.1} % after {}", part * 100.0, HumanDuration(so_far));
        if part > 0.0 {
            let left = so_far.as_secs_f64() * (1.0 - part) / part;
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            line.push_str(&format!(", about {} left", HumanDuration(left)));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_at_growing_intervals() {
        let now = Instant::now();
        let mut lines = Lines::start(now);
        let mut due = Vec::new();
        for second in 0..200 {
            let line = lines.line(0.25, now + Duration::from_secs(second));
            due.extend(line.map(|line| (second, line)));
        }
        let seconds: Vec<_> = due.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [5, 15, 35, 75, 135, 195]);
        assert_eq!(due[0].1, "25.0 % after 5 seconds, about 15 seconds left");
        let none = Lines::start(now).line(0.0, now + LINES.0);
        assert_eq!(none.as_deref(), Some("0.0 % after 5 seconds"));
    }
}
