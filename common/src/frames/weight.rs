//! Which pairs of half boards of a frame are counted, and how often.
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
//! so that the images of a solution together begin with A, B, C, D and their complements. Only frames
//! that begin with the smallest of these are units. An image that begins with it alone has weight 8;
//! where several do, the weights of all images still sum to 8, and how they share it is chosen
//! so that a frame needs few joins: whole ranges of B against whole ranges of D. (Taking the
//! smallest image as a whole, with weight 8 or 8 over its multiplicity, gives the same totals with
//! more joins.)
//!
//! The mathematics: `docs/method.md`, “Each solution once, in eight guises”.

use std::ops::Range;

/// A join of a frame: all half boards whose row sets have ranks in these ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// How often each pair that fits counts.
    pub(crate) weight: i64,
    /// Ranks of B, the rows of P, among the sets of its size.
    pub(crate) top: Range<usize>,
    /// Ranks of D, the rows of R, among the sets of its size.
    pub(crate) bottom: Range<usize>,
}

impl Share {
    /// How many pairs of row sets are joined.
    #[allow(clippy::cast_precision_loss)] // an estimate
    pub(crate) fn pairs(&self) -> f64 {
        self.top.len() as f64 * self.bottom.len() as f64
    }
}

/// Weighted joins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Vec<Share>);

impl Shares {
    /// The joins.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Share> {
        self.0.iter()
    }

    /// How many joins there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The join at this place.
    pub(crate) fn get(&self, at: usize) -> &Share {
        &self.0[at]
    }

    /// The smallest ranges that hold all ranks of all joins.
    pub(crate) fn whole(&self) -> (Range<usize>, Range<usize>) {
        let cover = |a: Range<usize>, b: &Range<usize>| a.start.min(b.start)..a.end.max(b.end);
        let whole = self
            .0
            .iter()
            .map(|share| (share.top.clone(), share.bottom.clone()));
        let whole =
            whole.reduce(|whole, share| (cover(whole.0, &share.0), cover(whole.1, &share.1)));
        whole.unwrap_or_default()
    }

    /// Replaces these by the joins of a frame whose four sets have one size and no queen stands in
    /// a middle row or column off the centre: `a` and `c` are the ranks of A and C among `count`
    /// sets; `halves` says that this size is half of n, so that quarter turns keep it.
    pub(crate) fn of_equal_sizes(&mut self, a: usize, c: usize, count: usize, halves: bool) {
        self.0.clear();
        // Ranks of A and of its complement: the bounds of B, C and D.
        let (low, high) = (a, if halves { count - 1 - a } else { count });
        let all = if halves { low..high + 1 } else { low..high };
        let above = low + 1..all.end;
        let between = low + 1..high;
        let (first, last) = (low..low + 1, high..high + 1);
        if c == low {
            // The half turn keeps the frame and exchanges B and D: 4 for each of the two.
            self.add(4, &all, &all);
            self.add(-2, &first, &first);
            if halves {
                self.add(-2, &last, &last);
            }
        } else if halves && c == high {
            // Mirrored columns keep the frame and complement B and D.
            self.add(4, &all, &all);
            self.add(-2, &between, &first);
            self.add(-2, &between, &last);
            self.add(-4, &first, &first);
            self.add(-4, &last, &last);
            self.add(-2, &first, &last);
            self.add(-2, &last, &first);
        } else {
            // With B = A the transposition exchanges C and D, with D = A the antitransposition B and C;
            // of B = ~A and D = ~A, which a quarter turn exchanges, the first has all the weight.
            self.add(8, &above, &between);
            self.add(4, &first, &between);
            self.add(4, &above, &first);
        }
    }

    /// Replaces these by the joins of a type II frame: `c` is the rank of C among `bottoms` sets of
    /// its size, `tops` the number of sets of B's size.
    ///
    /// Reflections bring the middle queens to x < n and y < n, in four ways; the transposition then
    /// exchanges (A, C, x) and (B, D, y), and no type II solution is its own image. Asking for
    /// D ≥ C rather than B ≥ A shortens the lower half's lists, which are the longer ones.
    pub(crate) fn of_type_two(&mut self, c: usize, tops: usize, bottoms: usize) {
        self.0.clear();
        self.add(8, &(0..tops), &(c + 1..bottoms));
        self.add(4, &(0..tops), &(c..c + 1));
    }

    fn add(&mut self, weight: i64, top: &Range<usize>, bottom: &Range<usize>) {
        if !top.is_empty() && !bottom.is_empty() {
            let (top, bottom) = (top.clone(), bottom.clone());
            self.0.push(Share {
                weight,
                top,
                bottom,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::sets::Sets;

    /// The weight of a solution by its four sets, of which units have A ≤ C and so on.
    fn weight(sets: &Sets, side: u32, [a, b, c, d]: [u32; 4]) -> i64 {
        let (size, count) = (a.count_ones(), sets.count(a.count_ones()));
        let halves = 2 * size == side;
        let [a, b, c, d] = [a, b, c, d].map(|set| sets.rank(set));
        let unit = if halves {
            c >= a && c + a < count
        } else {
            c >= a && 2 * size < side
        };
        if !unit {
            return 0;
        }
        let mut shares = Shares::default();
        shares.of_equal_sizes(a, c, count, halves);
        let sharing = shares
            .iter()
            .filter(|s| s.top.contains(&b) && s.bottom.contains(&d));
        sharing.map(|share| share.weight).sum()
    }

    #[test]
    fn the_weights_of_all_eight_images_sum_to_eight() {
        for side in 2..=5u32 {
            let sets = Sets::new(side);
            let full = (1u32 << side) - 1;
            for size in 1..side {
                let list = sets.of_size(size);
                for (&a, &b) in list.iter().flat_map(|a| list.iter().map(move |b| (a, b))) {
                    for (&c, &d) in list.iter().flat_map(|c| list.iter().map(move |d| (c, d))) {
                        let turn =
                            |[a, b, c, d]: [u32; 4]| [full ^ d, full ^ a, full ^ b, full ^ c];
                        let mut image = [a, b, c, d];
                        let mut sum = 0;
                        for _ in 0..4 {
                            let [a, b, c, d] = image;
                            sum += weight(&sets, side, image) + weight(&sets, side, [b, a, d, c]);
                            image = turn(image);
                        }
                        assert_eq!(sum, 8, "n = {side}: {a:b} {b:b} {c:b} {d:b}");
                        assert_eq!(image, [a, b, c, d]);
                    }
                }
            }
        }
    }
}
