//! Progress of work that takes a while, on standard error: a bar on a terminal, now and then a line
//! elsewhere.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use indicatif::HumanDuration;
use worker::terminal::{Drawn, note};

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
                note(&format!("{what} …"));
            }
        });
        let result = work();
        drop(working);
        result
    })
}

/// How far a count is.
pub(crate) struct Progress {
    drawn: Option<Drawn>,
    lines: Lines,
    /// All there is to do, in seconds of one core of the reference machine, where that is known.
    core_seconds: Option<f64>,
}

impl Progress {
    /// Of work of so many seconds of one core of the reference machine.
    pub(crate) fn start(core_seconds: Option<f64>) -> Self {
        Self {
            drawn: Drawn::bar(),
            lines: Lines::start(Instant::now()),
            core_seconds,
        }
    }

    /// `part`, 0 to 1, of the cost is done.
    pub(crate) fn show(&mut self, part: f64) {
        let now = Instant::now();
        match &self.drawn {
            Some(drawn) => drawn.show(part, self.words(part, now)),
            None => {
                if let Some(line) = self.lines.line(part, now) {
                    note(&line);
                }
            }
        }
    }

    /// How fast, and for how long still.
    fn words(&self, part: f64, now: Instant) -> String {
        let so_far = now - self.lines.started;
        let Some(left) = left(part, so_far) else {
            return "begun".to_owned();
        };
        let speed = self.core_seconds.map(|all| {
            let cores = part * all / so_far.as_secs_f64().max(1e-3);
            format!("at {cores:.2} reference cores, ")
        });
        format!("{}{left} left", speed.unwrap_or_default())
    }

    /// Clears what was drawn.
    pub(crate) fn finish(self) {
        drop(self.drawn);
    }
}

/// How long the rest takes at the speed so far.
fn left(part: f64, so_far: Duration) -> Option<HumanDuration> {
    (part > 0.0).then(|| {
        let left = so_far.as_secs_f64() * (1.0 - part) / part;
        HumanDuration(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX))
    })
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
        if let Some(left) = left(part, so_far) {
            line.push_str(&format!(", about {left} left"));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_speed_and_time_left() {
        let progress = Progress {
            drawn: None,
            lines: Lines::start(Instant::now()),
            core_seconds: Some(400.0),
        };
        let at = |part| progress.words(part, progress.lines.started + Duration::from_secs(50));
        assert_eq!(at(0.0), "begun");
        assert_eq!(at(0.25), "at 2.00 reference cores, 3 minutes left");
    }

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
