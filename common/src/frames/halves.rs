//! Half boards of a frame, by row set.
//!
//! Where a half has few boards, all of them are made once and held; where it has many, they are counted
//! first, and made again by the join whenever it sorts them.

use std::{
    ops::{ControlFlow, Range},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{
    hjoin::{KeyMaker, Keys, Part},
    qjoin::QJoin,
};
use crate::{
    crew::{Crew, OnDone},
    setup::CountError,
    simd::PAIRS_SLACK,
};

/// The half boards of the row sets that a frame asks for.
#[derive(Debug, Default)]
pub(crate) struct HalfBoards {
    /// All ranks that the frame asks for.
    whole: Range<usize>,
    /// How many boards the row sets before each of these ranks have, and all of them.
    starts: Vec<usize>,
    /// The boards by rank, if they are held.
    held: Option<Vec<u64>>,
    /// Memory for those of another frame.
    spare: Vec<u64>,
    /// The most boards to join at a time.
    limit: usize,
    /// The ranks that the join has sorted as its inner part, and as its part on a bound.
    inner: Range<usize>,
    bound: Range<usize>,
}

impl HalfBoards {
    /// Begins a frame that asks for row sets of these ranks. The crew counts their boards,
    /// unless these are at most `most`, and held.
    ///
    /// # Errors
    /// `Cancelled` when `on_done`, which is called now and then, breaks.
    pub(crate) fn begin(
        &mut self,
        whole: Range<usize>,
        most: usize,
        maker: &impl HalfBoardMaker,
        crew: &Crew,
        on_done: OnDone<'_>,
    ) -> Result<(), CountError> {
        (self.whole, self.limit) = (whole, usize::MAX);
        (self.inner, self.bound) = (0..0, 0..0);
        if let Some(held) = self.held.take() {
            self.spare = held;
        }
        if self.hold(maker, most) {
            return Ok(());
        }
        let next = AtomicUsize::new(self.whole.start);
        let counted = crew.run(&mut vec![(); crew.size()], on_done, |(), tell| {
            let mut counted = Vec::new();
            loop {
                let rank = next.fetch_add(1, Relaxed);
                if rank >= self.whole.end || tell.done(0).is_break() {
                    return counted;
                }
                counted.push((rank, maker.count(rank)));
            }
        });
        let ControlFlow::Continue(counted) = counted else {
            return Err(CountError::Cancelled);
        };
        self.starts.clear();
        self.starts.resize(self.whole.len() + 1, 0);
        for (rank, count) in counted.into_iter().flatten() {
            self.starts[rank - self.whole.start + 1] = count;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        Ok(())
    }

    /// Makes all boards if they are at most so many, and says whether they are.
    fn hold(&mut self, maker: &impl HalfBoardMaker, most: usize) -> bool {
        let keys = &mut self.spare;
        keys.clear();
        let (mut pairs, mut of_one) = (0, 0);
        for rank in self.whole.clone() {
            let more = maker.pairs(rank);
            (pairs, of_one) = (pairs + more, more.max(of_one));
        }
        if pairs > most {
            for rank in self.whole.clone() {
                maker.make_some(rank, keys);
            }
            if keys.len() > most / 64 {
                return false;
            }
            keys.clear();
        }
        // Not twice as much, as a list that grows would take. Memory that no key gets to is none.
        keys.reserve_exact(pairs.min(most + of_one) + PAIRS_SLACK);
        self.starts.clear();
        self.starts.push(0);
        for rank in self.whole.clone() {
            maker.make(rank, keys);
            if keys.len() > most {
                return false;
            }
            self.starts.push(keys.len());
        }
        self.held = Some(std::mem::take(keys));
        true
    }

    /// How many boards there are.
    pub(crate) fn number(&self) -> usize {
        self.starts[self.whole.len()]
    }

    /// Joins so many boards at a time from now on, or one row set's more.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    fn start(&self, rank: usize) -> usize {
        self.starts[rank - self.whole.start]
    }

    /// The first of `ranks` that are joined at a time, so many that all pieces will have about as many
    /// boards: a short piece joined with a long one takes far more than its share of the time.
    pub(crate) fn piece(&self, ranks: &Range<usize>) -> Range<usize> {
        let first = self.start(ranks.start);
        let keys = self.start(ranks.end) - first;
        let pieces = keys.div_ceil(self.limit).max(1);
        let wanted = first + keys.div_ceil(pieces);
        let more = (ranks.start + 1..ranks.end).find(|&end| self.start(end) >= wanted);
        ranks.start..more.unwrap_or(ranks.end)
    }

    /// Calls `with` with the boards whose row sets have these ranks.
    pub(crate) fn with_keys<R>(
        &self,
        ranks: &Range<usize>,
        maker: &impl HalfBoardMaker,
        with: impl FnOnce(Keys<'_>) -> R,
    ) -> R {
        let (start, end) = (self.start(ranks.start), self.start(ranks.end));
        match &self.held {
            Some(held) => with(Keys::List(&held[start..end])),
            None => with(Keys::Made(&Ranks {
                maker,
                ranks: ranks.clone(),
                keys: end - start,
            })),
        }
    }

    /// Whether no boards of this frame were sorted yet.
    pub(crate) fn is_unsorted(&self) -> bool {
        self.inner.is_empty() && self.bound.is_empty()
    }

    /// Makes sure that `set` sorted the boards of these ranks, and says into which part: a
    /// single row set is one on a bound of A, and has few boards unless there are few row sets.
    ///
    /// # Errors
    /// Those of `set`.
    pub(crate) fn sort(
        &mut self,
        ranks: &Range<usize>,
        maker: &impl HalfBoardMaker,
        set: impl FnOnce(Part, Keys<'_>) -> Result<(), CountError>,
    ) -> Result<Part, CountError> {
        let keys = self.start(ranks.end) - self.start(ranks.start);
        let part = if ranks.len() > 1 || keys > Part::MOST_BOUND_KEYS {
            Part::Inner
        } else {
            Part::Bound
        };
        let sorted = match part {
            Part::Inner => &self.inner,
            Part::Bound => &self.bound,
        };
        if sorted != ranks {
            self.with_keys(ranks, maker, |keys| set(part, keys))?;
            match part {
                Part::Inner => self.inner = ranks.clone(),
                Part::Bound => self.bound = ranks.clone(),
            }
        }
        Ok(part)
    }
}

/// Where the half boards of a row set come from: pairs of lists of quarter boards.
pub(crate) trait HalfBoardMaker: Sync {
    /// What joins them.
    fn qjoin(&self) -> QJoin;

    /// The bits of their keys.
    fn mask(&self) -> u64;

    /// Calls `visit` with all pairs of lists that the half boards of the row set with this rank are
    /// made of.
    fn quarters(&self, rank: usize, visit: &mut dyn FnMut(&[u64], &[u64]));

    /// Adds the half boards of the row set with this rank.
    fn make(&self, rank: usize, keys: &mut Vec<u64>) {
        self.quarters(rank, &mut |left, right| {
            self.qjoin().join(left, right, self.mask(), keys);
        });
    }

    /// The pairs of quarter boards that they are made of.
    fn pairs(&self, rank: usize) -> usize {
        let mut pairs = 0;
        self.quarters(rank, &mut |left, right| pairs += left.len() * right.len());
        pairs
    }

    /// How many there are.
    fn count(&self, rank: usize) -> usize {
        let mut count = 0;
        self.quarters(rank, &mut |left, right| {
            count += self.qjoin().count(left, right);
        });
        count
    }

    /// Adds about one in 64 of them, all of them as likely.
    fn make_some(&self, rank: usize, keys: &mut Vec<u64>) {
        let mut skip = rank * 37;
        self.quarters(rank, &mut |left, right| {
            let (short, long) = if left.len() < right.len() {
                (left, right)
            } else {
                (right, left)
            };
            skip %= 64;
            let mut chosen = long.iter().skip(skip).step_by(64);
            chosen.by_ref().for_each(|key| {
                self.qjoin()
                    .join(std::slice::from_ref(key), short, self.mask(), keys);
            });
            // Where the next list is to go on, were they one after the other.
            skip += (64 - (long.len() % 64)) % 64;
        });
    }
}

/// The half boards whose row sets have these ranks.
struct Ranks<'a, M> {
    maker: &'a M,
    ranks: Range<usize>,
    keys: usize,
}

impl<M: HalfBoardMaker> KeyMaker for Ranks<'_, M> {
    fn groups(&self) -> usize {
        self.ranks.len()
    }

    fn keys(&self) -> usize {
        self.keys
    }

    fn make(&self, group: usize, keys: &mut Vec<u64>) {
        self.maker.make(self.ranks.start + group, keys);
    }

    fn make_some(&self, group: usize, keys: &mut Vec<u64>) {
        self.maker.make_some(self.ranks.start + group, keys);
    }
}
