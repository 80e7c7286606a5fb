//! What all techniques count, and how they are told to stop.

use crate::board::Board;

/// Asked many times a second whether to give up.
pub type Stop<'a> = dyn Fn() -> bool + 'a;

/// What a technique found, and how much it looked at for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The solutions.
    pub solutions: u64,
    /// What was visited: see [`Textbook::visits`](super::Textbook::visits).
    pub visited: u64,
}

/// How often to ask whether to stop: asking may cost more than a visit.
const ASK_EVERY: u64 = 1 << 16;

/// Counts visits, and asks to stop once in a while.
pub(super) struct Patience<'a> {
    stop: &'a Stop<'a>,
    pub(super) visited: u64,
    ask_at: u64,
}

impl<'a> Patience<'a> {
    /// None yet.
    pub(super) fn new(stop: &'a Stop<'a>) -> Self {
        Self {
            stop,
            visited: 0,
            ask_at: ASK_EVERY,
        }
    }

    /// `None` when told to stop.
    pub(super) fn visit(&mut self, count: u64) -> Option<()> {
        self.visited += count;
        if self.visited < self.ask_at {
            return Some(());
        }
        self.ask_at = self.visited + ASK_EVERY;
        (!(self.stop)()).then_some(())
    }

    /// What was found in these visits.
    pub(super) fn count(&self, solutions: u64) -> Count {
        Count {
            solutions,
            visited: self.visited,
        }
    }
}

/// For each row the column of its queen, or whatever a technique keeps there meanwhile.
pub(super) type Columns = [u8; Board::MAX as usize];
