//! Weights: which pairs of half boards of a frame are counted, and how often.
//!
//! P has columns A and rows B, R has columns C and rows D. The eight symmetries of the square take
//! (A, B, C, D) to
//!
//! | | |
//! |---|---|
//! | identity (A, B, C, D) | quarter turn (~D, ~A, ~B, ~C) |
//! | transposition (B, A, D, C) | mirrored rows (~A, ~D, ~C, ~B) |
//! | half turn (C, D, A, B) | quarter turn back (~B, ~C, ~D, ~A) |
//! | antitransposition (D, C, B, A) | mirrored columns (~C, ~B, ~A, ~D) |
//!
//! so that the first sets of all images of a solution are A, B, C, D and their complements. Only frames
//! whose first set is the smallest of these are units. If one image begins with it, this image has
//! weight 8. If several do, their weights sum to 8, divided so that a frame needs few joins: whole ranges
//! of B against whole ranges of D. (Choosing the smallest image as a whole, with weight 8 or 8 over its
//! multiplicity, gives the same totals with more joins.)
//!
//! The mathematics: `docs/method.md`, “Each solution once”.

use std::ops::Range;

/// A join of a frame: all half boards whose row sets have ranks in these ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Multiplicity of each pair that fits.
    pub(crate) weight: i64,
    /// Ranks of B, the rows of P, among the sets of its size.
    pub(crate) top: Range<usize>,
    /// Ranks of D, the rows of R, among the sets of its size.
    pub(crate) bottom: Range<usize>,
}

impl Share {
    /// Returns the number of pairs of row sets.
    #[allow(clippy::cast_precision_loss)] // an estimate
    pub(crate) fn pairs(&self) -> f64 {
        self.top.len() as f64 * self.bottom.len() as f64
    }
}

#[derive(Debug)]
pub(crate) struct Shares(Vec<Share>);

impl Shares {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Share> {
        self.0.iter()
    }

    /// Returns the smallest ranges that contain all ranks of all joins.
    pub(crate) fn whole(&self) -> (Range<usize>, Range<usize>) {
        let cover = |a: Range<usize>, b: &Range<usize>| a.start.min(b.start)..a.end.max(b.end);
        let whole = self.0.iter().map(|share| (share.top.clone(), share.bottom.clone()));
        let whole =
            whole.reduce(|whole, share| (cover(whole.0, &share.0), cover(whole.1, &share.1)));
        whole.unwrap_or_default()
    }

    /// Returns the joins of a frame whose four sets have one size.
    ///
    /// No queen stands in a middle row or column off the centre. `a` and `c` are the ranks of A and C
    /// among `count` sets; `halves` is whether this size is half of n, so that quarter turns keep it.
    pub(crate) fn of_equal_sizes(a: usize, c: usize, count: usize, halves: bool) -> Self {
        let mut shares = Self(Vec::new());
        // Ranks of A and of its complement: the bounds of B, C and D.
        let (low, high) = (a, if halves { count - 1 - a } else { count });
        let all = if halves { low..high + 1 } else { low..high };
        let above = low + 1..all.end;
        let between = low + 1..high;
        let (first, last) = (low..low + 1, high..high + 1);
        if c == low {
            // The half turn keeps the frame and exchanges B and D: 4 for each of the two.
            shares.add(4, &all, &all);
            shares.add(-2, &first, &first);
            if halves {
                shares.add(-2, &last, &last);
            }
        } else if halves && c == high {
            // Mirrored columns keep the frame and complement B and D.
            shares.add(4, &all, &all);
            shares.add(-2, &between, &first);
            shares.add(-2, &between, &last);
            shares.add(-4, &first, &first);
            shares.add(-4, &last, &last);
            shares.add(-2, &first, &last);
            shares.add(-2, &last, &first);
        } else {
            // With B = A the transposition exchanges C and D, with D = A the antitransposition B and C;
            // of B = ~A and D = ~A, which a quarter turn exchanges, the first has all the weight.
            shares.add(8, &above, &between);
            shares.add(4, &first, &between);
            shares.add(4, &above, &first);
        }
        shares
    }

    /// Returns the joins of a type II frame.
    ///
    /// `c` is the rank of C among `bottoms` sets of its size, `tops` the number of sets of B's size.
    /// Reflections bring the middle queens to x < n and y < n, in four ways; the transposition then
    /// exchanges (A, C, x) and (B, D, y), and no type II solution is its own image. The
    /// condition D ≥ C instead of B ≥ A shortens the lower half's lists, which are the longer ones.
    pub(crate) fn of_type_two(c: usize, tops: usize, bottoms: usize) -> Self {
        let mut shares = Self(Vec::new());
        shares.add(8, &(0..tops), &(c + 1..bottoms));
        shares.add(4, &(0..tops), &(c..c + 1));
        shares
    }

    fn add(&mut self, weight: i64, top: &Range<usize>, bottom: &Range<usize>) {
        if !top.is_empty() && !bottom.is_empty() {
            let (top, bottom) = (top.clone(), bottom.clone());
            self.0.push(Share { weight, top, bottom });
        }
    }
}
