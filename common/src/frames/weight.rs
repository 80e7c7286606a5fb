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
//! whose first set is the smallest of these are units. If only one image begins with the smallest set, it
//! has weight 8. If several do, their weights sum to 8, divided so that a frame needs few joins: whole
//! ranges of B against whole ranges of D. (Counting only the smallest image, with 8 divided by its
//! multiplicity as the weight, gives the same totals with more joins.)
//!
//! The mathematics: `docs/method.md`, “Each solution once”.

use std::ops::Range;

/// A join of a frame: all half boards whose row sets have ranks in these ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeightedJoin {
    /// Multiplicity of each pair that fits.
    pub(crate) weight: i64,
    /// Ranks of B, the rows of P, among the sets of its size.
    pub(crate) top: Range<usize>,
    /// Ranks of D, the rows of R, among the sets of its size.
    pub(crate) bottom: Range<usize>,
}

impl WeightedJoin {
    /// Returns the number of pairs of row sets.
    #[allow(clippy::cast_precision_loss)] // an estimate
    pub(crate) fn pairs(&self) -> f64 {
        self.top.len() as f64 * self.bottom.len() as f64
    }
}

#[derive(Debug)]
pub(crate) struct WeightedJoins(Vec<WeightedJoin>);

impl WeightedJoins {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WeightedJoin> {
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

    /// Returns the joins of a frame whose four sets have the same size.
    ///
    /// No queen stands in a middle row or column off the center. `a` and `c` are the ranks of A and C
    /// among `count` sets; `is_half` is whether the size is n / 2, which quarter turns preserve.
    pub(crate) fn of_equal_sizes(a: usize, c: usize, count: usize, is_half: bool) -> Self {
        let mut shares = Self(Vec::new());
        // Ranks of A and of its complement: the bounds of B, C and D.
        let (low, high) = (a, if is_half { count - 1 - a } else { count });
        let all = if is_half { low..high + 1 } else { low..high };
        let above = low + 1..all.end;
        let between = low + 1..high;
        let (first, last) = (low..low + 1, high..high + 1);
        if c == low {
            // The half turn maps the frame to itself and exchanges B and D: 4 for each of the two images.
            shares.add(4, &all, &all);
            shares.add(-2, &first, &first);
            if is_half {
                shares.add(-2, &last, &last);
            }
        } else if is_half && c == high {
            // Mirroring the columns maps the frame to itself and complements B and D.
            shares.add(4, &all, &all);
            shares.add(-2, &between, &first);
            shares.add(-2, &between, &last);
            shares.add(-4, &first, &first);
            shares.add(-4, &last, &last);
            shares.add(-2, &first, &last);
            shares.add(-2, &last, &first);
        } else {
            // If B = A, the transposition exchanges C and D; if D = A, the antitransposition B and C. A
            // quarter turn exchanges B = ~A and D = ~A; images with B = ~A have all the weight.
            shares.add(8, &above, &between);
            shares.add(4, &first, &between);
            shares.add(4, &above, &first);
        }
        shares
    }

    /// Returns the joins of a type II frame.
    ///
    /// `c` is the rank of C among `bottoms` sets of its size, `tops` the number of sets of B's size.
    /// Reflections move the middle queens to x < n and y < n, in four ways; the transposition then
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
            self.0.push(WeightedJoin { weight, top, bottom });
        }
    }
}
