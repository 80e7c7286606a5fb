//! X3: the bits that the leaves of a tile are banded by.
//!
//! The mathematics: `docs/method.md`, “Counting disjoint pairs without looking at all of them”.

use super::order::extract;

/// The most bits of X3.
pub(crate) const MOST_BITS: usize = 3;

/// From which numbers of pairs on leaves are banded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Pairs of keys of both lists.
    pub(crate) join: usize,
    /// Of an average row of the one and the other side of a tile, narrowed, for one, two and three
    /// bits of X3. A leaf has about a fifth of these pairs.
    pub(crate) tile: [usize; MOST_BITS],
}

impl Limits {
    /// Found on an Intel Xeon (Cascade Lake): of two frames of N = 26 bands make one faster and leave the
    /// other as it is. With limits of a half and a fourth of these, frames of N = 24 to 28 take up to 1.5
    /// and 3.5 % longer.
    pub(crate) const MEASURED: Self = Self {
        join: 1_000_000_000_000,
        tile: [24_000_000, 24_000_000, 100_000_000],
    };

    /// The number of bits for a tile with so many pairs.
    #[inline(always)]
    pub(crate) fn bits(self, pairs: usize) -> usize {
        self.tile.iter().filter(|&&limit| pairs >= limit).count()
    }
}

/// The bits of a key that make up X3, those that rule out most pairs first; zeros where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct X3([u64; MOST_BITS]);

impl X3 {
    /// The first of these bits.
    pub(crate) fn new(bits: impl Iterator<Item = u64>) -> Self {
        let mut x3 = Self::default();
        for (to, bit) in x3.0.iter_mut().zip(bits) {
            *to = bit;
        }
        x3
    }

    pub(crate) fn mask(self) -> u64 {
        self.0.iter().fold(0, |all, bit| all | bit)
    }

    /// The first `number` of them, where the bits of a rest are `rest`.
    pub(crate) fn within(self, rest: u64, number: usize) -> X3Places {
        let first = Self(std::array::from_fn(|at| {
            if at < number { self.0[at] } else { 0 }
        }));
        let mut left = extract(first.mask(), rest);
        let mut places = X3Places::default();
        while left != 0 {
            // Those taken out before were below it.
            places.bits[places.number] = left.trailing_zeros() - places.number_u32();
            places.number += 1;
            left &= left - 1;
        }
        places
    }
}

/// Where bits of X3 are in a rest, each once those before it were taken out and put on top.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct X3Places {
    pub(crate) bits: [u32; MOST_BITS],
    pub(crate) number: usize,
}

impl X3Places {
    #[expect(clippy::cast_possible_truncation, reason = "at most three")]
    pub(crate) fn number_u32(self) -> u32 {
        self.number as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_left_when_the_bits_below_are_gone() {
        let x3 = X3([1 << 9, 1 << 2, 1 << 4]);
        let rest = 0b11_1111_0110;
        let places = |number| {
            let places = x3.within(rest, number);
            places.bits[..places.number].to_vec()
        };
        assert_eq!(places(0), [0; 0]);
        assert_eq!(places(1), [7]);
        assert_eq!(places(2), [1, 6]);
        assert_eq!(places(3), [1, 1, 5]);
    }
}
