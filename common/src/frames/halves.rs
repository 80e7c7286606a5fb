//! Half boards of a frame, by row set.

use std::ops::{ControlFlow, Range};

use super::hjoin::Part;
use crate::count::CountError;

/// Keys between two questions whether to go on: some milliseconds.
const KEYS_A_CALL: usize = 1 << 22;

/// The half boards of consecutive row sets of a frame.
#[derive(Debug, Default)]
pub(crate) struct HalfBoards {
    keys: Vec<u64>,
    /// Where each row set's boards begin, and the end of the last.
    starts: Vec<usize>,
    /// The ranks of the row sets held.
    ranks: Range<usize>,
    /// All ranks that the frame asks for.
    whole: Range<usize>,
    /// The most boards to hold.
    limit: usize,
    /// The ranks that the join has sorted as its inner part, and as its part on a bound.
    inner: Range<usize>,
    bound: Range<usize>,
}

impl HalfBoards {
    /// Begins a frame that asks for row sets of these ranks. Of so many row sets are boards held
    /// at a time that all but the last have fewer than `limit`.
    pub(crate) fn begin(&mut self, whole: Range<usize>, limit: usize) {
        (self.whole, self.limit) = (whole, limit);
        (self.ranks, self.inner, self.bound) = (0..0, 0..0, 0..0);
    }

    /// The boards whose row sets have these ranks, all of which must be held.
    pub(crate) fn keys(&self, ranks: &Range<usize>) -> &[u64] {
        let start = |rank: usize| self.starts[rank - self.ranks.start];
        &self.keys[start(ranks.start)..start(ranks.end)]
    }

    /// Makes sure that the boards of the first of `ranks` are held, and says of which ranks among
    /// them they are.
    ///
    /// # Errors
    /// `Cancelled` when `go_on`, which is asked now and then, breaks.
    pub(crate) fn hold(
        &mut self,
        ranks: &Range<usize>,
        maker: &impl HalfBoardMaker,
        mut go_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Range<usize>, CountError> {
        if self.ranks.is_empty() {
            self.fill(self.whole.clone(), maker, &mut go_on)?;
        }
        if !self.ranks.contains(&ranks.start) {
            self.fill(ranks.start..self.whole.end, maker, &mut go_on)?;
        }
        Ok(ranks.start..ranks.end.min(self.ranks.end))
    }

    /// Whether no boards of this frame were sorted yet.
    pub(crate) fn is_unsorted(&self) -> bool {
        self.inner.is_empty() && self.bound.is_empty()
    }

    /// Makes sure that `set` sorted the boards of these ranks, and says into which part: a
    /// single row set is one on a bound of A, and has few boards unless there are few row sets.
    pub(crate) fn sort(&mut self, ranks: &Range<usize>, set: impl FnOnce(Part, &[u64])) -> Part {
        let part = if ranks.len() > 1 || self.keys(ranks).len() > Part::MOST_BOUND_KEYS {
            Part::Inner
        } else {
            Part::Bound
        };
        let sorted = match part {
            Part::Inner => &self.inner,
            Part::Bound => &self.bound,
        };
        if sorted != ranks {
            set(part, self.keys(ranks));
            match part {
                Part::Inner => self.inner = ranks.clone(),
                Part::Bound => self.bound = ranks.clone(),
            }
        }
        part
    }

    fn fill(
        &mut self,
        ranks: Range<usize>,
        maker: &impl HalfBoardMaker,
        go_on: &mut impl FnMut() -> ControlFlow<()>,
    ) -> Result<(), CountError> {
        self.keys.clear();
        self.starts.clear();
        self.starts.push(0);
        self.ranks = ranks.start..ranks.start;
        let mut asked = 0;
        for rank in ranks.clone() {
            maker.join(rank, &mut self.keys);
            self.starts.push(self.keys.len());
            self.ranks.end = rank + 1;
            if self.keys.len() >= self.limit {
                self.even_out(ranks.len());
                break;
            }
            if self.keys.len() - asked >= KEYS_A_CALL {
                asked = self.keys.len();
                if go_on().is_break() {
                    return Err(CountError::Cancelled);
                }
            }
        }
        Ok(())
    }

    /// Gives back so many of the boards held that all pieces of `left` row sets will be of about the
    /// same length: a short piece joined with a long one takes far more than its share of the time.
    fn even_out(&mut self, left: usize) {
        let pieces = left.div_ceil(self.ranks.len());
        let even = left.div_ceil(pieces);
        self.ranks.end = self.ranks.start + even;
        self.starts.truncate(even + 1);
        self.keys.truncate(self.starts[even]);
    }
}

/// Where the half boards of a row set come from.
pub(crate) trait HalfBoardMaker {
    /// Adds the half boards of the row set with this rank.
    fn join(&self, rank: usize, keys: &mut Vec<u64>);
}
