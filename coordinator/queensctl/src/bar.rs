//! A bar for what takes a while and whose parts can be counted.

use std::time::{Duration, Instant};

use worker::terminal::Drawn;

use coordinator::text::{span, thousands};

/// A bar with the rate and the time left, where standard error is a terminal.
pub(super) struct Bar {
    drawn: Option<Drawn>,
    started: Instant,
    /// What is counted: `lines`.
    noun: &'static str,
}

impl Bar {
    /// Begins one, where somebody sees it.
    pub(super) fn start(noun: &'static str) -> Self {
        Self {
            drawn: Drawn::bar(),
            started: Instant::now(),
            noun,
        }
    }

    /// Begins one that nobody sees.
    pub(super) fn hidden(noun: &'static str) -> Self {
        Self {
            drawn: None,
            started: Instant::now(),
            noun,
        }
    }

    /// Whether somebody sees it.
    pub(super) fn is_seen(&self) -> bool {
        self.drawn.is_some()
    }

    /// So many are done, which are this part, 0 to 1, of all.
    pub(super) fn show(&self, number: u64, part: f64) {
        if let Some(drawn) = &self.drawn {
            let so_far = self.started.elapsed();
            drawn.show(part, words(self.noun, number, part, so_far));
        }
    }
}

/// `5,000 lines a second, 3.0 s left`.
fn words(noun: &str, number: u64, part: f64, so_far: Duration) -> String {
    let seconds = so_far.as_secs_f64().max(1e-3);
    // For people; `as` saturates.
    #[expect(clippy::cast_possible_truncation)]
    let a_second = (number as f64 / seconds).round() as u128;
    let rate = format!("{} {noun} a second", thousands(a_second));
    match part > 0.0 {
        true => format!(
            "{rate}, {} left",
            span(seconds * (1.0 - part).max(0.0) / part)
        ),
        false => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_the_rate_and_the_time_left() {
        let words = |number, part| words("lines", number, part, Duration::from_secs(20));
        assert_eq!(words(100_000, 0.25), "5,000 lines a second, 1 min 0 s left");
        assert_eq!(words(100_000, 1.0), "5,000 lines a second, 0.0 s left");
        assert_eq!(words(0, 0.0), "0 lines a second");
    }
}
