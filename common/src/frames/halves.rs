//! Half boards of a frame, by row set.
//!
//! If a half has few boards, all are made once and held. Otherwise they are only counted first, and
//! made whenever the join sorts them.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::parts::HalfMaker;
use crate::{
    compute::{
        crew::{Crew, OnDone},
        setup::{CountError, go_on},
    },
    join::{KeyMaker, Keys, Part},
    simd::PAIRS_SLACK,
};

/// Half boards of the row sets that a frame needs.
#[derive(Debug, Default)]
pub(crate) struct HalfBoards {
    /// Ranks that the frame needs.
    whole: Range<usize>,
    /// Number of boards before each of these ranks, and in total.
    starts: Vec<usize>,
    /// Boards by rank, if held.
    keys: Vec<u64>,
    is_held: bool,
    /// Maximum number of boards joined at a time.
    limit: usize,
    /// Ranks currently sorted, by part.
    sorted: [Range<usize>; 2],
}

/// Number of row sets of which some boards are made to estimate the number of all.
const SAMPLED_RANKS: usize = 128;

impl HalfBoards {
    /// Starts a frame with row sets of these ranks, whose boards are estimated if they are not held.
    ///
    /// Holds them if there are at most `most`.
    #[expect(clippy::cast_possible_truncation, reason = "an estimate")]
    pub(crate) fn begin_estimated(
        &mut self,
        whole: Range<usize>,
        most: usize,
        maker: &HalfMaker<'_>,
    ) {
        (self.whole, self.limit) = (whole, usize::MAX);
        self.sorted = Default::default();
        self.is_held = self.hold(maker, most);
        if self.is_held {
            return;
        }
        self.keys.clear();
        let step = (self.whole.len() / SAMPLED_RANKS).max(1);
        let (mut pairs, mut sampled) = (0, 0);
        self.starts.clear();
        self.starts.push(0);
        for (at, rank) in self.whole.clone().enumerate() {
            let own = maker.pairs(rank);
            if at % step == 0 {
                maker.make_some(rank, &mut self.keys);
                sampled += own;
            }
            pairs += own;
            self.starts.push(pairs);
        }
        // A sampled key stands for 64.
        let part = 64.0 * self.keys.len() as f64 / sampled.max(1) as f64;
        self.keys.clear();
        for start in &mut self.starts {
            *start = (*start as f64 * part) as usize;
        }
    }

    /// Starts a frame with row sets of these ranks.
    ///
    /// Holds their boards if there are at most `most`; otherwise the crew counts them.
    ///
    /// # Errors
    /// `Cancelled` if `on_done`, which is called repeatedly, returns `Break`.
    pub(crate) fn begin(
        &mut self,
        whole: Range<usize>,
        most: usize,
        maker: &HalfMaker<'_>,
        crew: &Crew,
        on_done: OnDone<'_>,
    ) -> Result<(), CountError> {
        (self.whole, self.limit) = (whole, usize::MAX);
        self.sorted = Default::default();
        self.is_held = self.hold(maker, most);
        if self.is_held {
            return Ok(());
        }
        let next = AtomicUsize::new(self.whole.start);
        let counted = crew.run(&mut vec![(); crew.size()], on_done, |(), reporter| {
            let mut counted = Vec::new();
            loop {
                let rank = next.fetch_add(1, Relaxed);
                if rank >= self.whole.end || reporter.done(0).is_break() {
                    return counted;
                }
                counted.push((rank, maker.count(rank)));
            }
        });
        self.starts.clear();
        self.starts.resize(self.whole.len() + 1, 0);
        for (rank, count) in go_on(counted)?.into_iter().flatten() {
            self.starts[rank - self.whole.start + 1] = count;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        Ok(())
    }

    /// Makes and holds all boards if there are at most `most`; returns whether it did.
    fn hold(&mut self, maker: &HalfMaker<'_>, most: usize) -> bool {
        let keys = &mut self.keys;
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
        // Reserves the exact size, because a growing list could take twice as much.
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
        true
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    pub(crate) fn number(&self) -> usize {
        self.starts[self.whole.len()]
    }

    /// Limits the boards joined at a time; a piece may exceed this by one row set.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    fn start(&self, rank: usize) -> usize {
        self.starts[rank - self.whole.start]
    }

    /// Returns the next ranks to join.
    ///
    /// Pieces have about equal length, because a short piece joined with a long one takes more than
    /// its share of the time.
    pub(crate) fn piece(&self, ranks: &Range<usize>) -> Range<usize> {
        let first = self.start(ranks.start);
        let keys = self.start(ranks.end) - first;
        let pieces = keys.div_ceil(self.limit).max(1);
        let wanted = first + keys.div_ceil(pieces);
        let more = (ranks.start + 1..ranks.end).find(|&end| self.start(end) >= wanted);
        ranks.start..more.unwrap_or(ranks.end)
    }

    /// Passes the boards of these ranks to `with`, held or made on demand.
    pub(crate) fn with_keys<R>(
        &self,
        ranks: &Range<usize>,
        maker: &HalfMaker<'_>,
        with: impl FnOnce(Keys<'_>) -> R,
    ) -> R {
        let (start, end) = (self.start(ranks.start), self.start(ranks.end));
        match self.is_held {
            true => with(Keys::List(&self.keys[start..end])),
            false => with(Keys::Made(&Ranks { maker, ranks: ranks.clone(), keys: end - start })),
        }
    }

    /// Returns whether no boards of this frame have been sorted yet.
    pub(crate) fn is_unsorted(&self) -> bool {
        self.sorted.iter().all(Range::is_empty)
    }

    /// Sorts the boards of these ranks with `set` if necessary; returns their part.
    ///
    /// A single row set is usually a bound of A, and has few boards unless there are few row sets.
    ///
    /// # Errors
    /// Those of `set`.
    pub(crate) fn sort(
        &mut self,
        ranks: &Range<usize>,
        maker: &HalfMaker<'_>,
        set: impl FnOnce(Part, Keys<'_>) -> Result<(), CountError>,
    ) -> Result<Part, CountError> {
        let keys = self.start(ranks.end) - self.start(ranks.start);
        let part =
            if ranks.len() > 1 || keys > Part::MAX_BOUND_KEYS { Part::Inner } else { Part::Bound };
        if self.sorted[part as usize] != *ranks {
            self.with_keys(ranks, maker, |keys| set(part, keys))?;
            self.sorted[part as usize] = ranks.clone();
        }
        Ok(part)
    }
}

/// Half boards of the row sets with these ranks.
struct Ranks<'a> {
    maker: &'a HalfMaker<'a>,
    ranks: Range<usize>,
    keys: usize,
}

impl KeyMaker for Ranks<'_> {
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

    fn quarters(&self, group: usize, visit: &mut dyn FnMut(&[u64], &[u64])) {
        self.maker.quarters(self.ranks.start + group, visit);
    }
}
