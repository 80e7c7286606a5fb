//! QJoin: half boards from pairs of quarter boards that fit.
//!
//! The mathematics: `docs/method.md`, “Two joins”.

use crate::{
    kernel::Kernel,
    simd::{PAIRS_SLACK, Pairs, Set, Work, dispatch},
};

/// Makes keys out of pairs of keys that fit, on one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QJoin {
    kernel: Kernel,
}

impl QJoin {
    /// On this instruction set.
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self { kernel }
    }

    /// Adds `(p | q) & mask` to `keys` for every p and q of the lists that attack no common diagonal.
    pub(crate) fn join(self, left: &[u64], right: &[u64], mask: u64, keys: &mut Vec<u64>) {
        let vectors = |outer: &[u64], inner: &[u64]| outer.len() * inner.len().div_ceil(8);
        let (outer, inner) = if vectors(left, right) <= vectors(right, left) {
            (left, right)
        } else {
            (right, left)
        };
        let pairs = Pairs { outer, inner, mask };
        dispatch(self.kernel, Fitting { pairs, keys });
    }

    /// How many pairs of p and q there are that attack no common diagonal.
    pub(crate) fn count(self, left: &[u64], right: &[u64]) -> usize {
        let (outer, inner) = if left.len() < right.len() {
            (left, right)
        } else {
            (right, left)
        };
        dispatch(self.kernel, CountFitting { outer, inner })
    }
}

struct Fitting<'a> {
    pairs: Pairs<'a>,
    keys: &'a mut Vec<u64>,
}

impl Work for Fitting<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, set: S) {
        let Self { pairs, keys } = self;
        keys.reserve(pairs.outer.len() * pairs.inner.len() + PAIRS_SLACK);
        // SAFETY: the room was made above, and so many words of it were written.
        unsafe {
            let fitting = set.fitting(pairs, keys.as_mut_ptr().add(keys.len()));
            keys.set_len(keys.len() + fitting);
        }
    }
}

struct CountFitting<'a> {
    outer: &'a [u64],
    inner: &'a [u64],
}

impl Work for CountFitting<'_> {
    type Result = usize;

    /// A loop that compilers turn into whatever vectors the set has.
    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> usize {
        let mut all = 0;
        for &p in self.outer {
            let fitting: u64 = self.inner.iter().map(|&q| u64::from(p & q == 0)).sum();
            all += fitting;
        }
        usize::try_from(all).expect("no more than pairs in memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sparse words, so that some pairs fit.
    fn list() -> impl Strategy<Value = Vec<u64>> {
        let word = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a & b & c);
        prop::collection::vec(word, 0..40)
    }

    proptest! {
        #[test]
        fn every_kernel_finds_the_pairs_that_fit(left in list(), right in list(), shift in 0..60u32) {
            let mask = u64::MAX >> shift;
            let mut expected = vec![3; 3];
            for &p in &left {
                let fitting = right.iter().filter(|&&q| p & q == 0);
                expected.extend(fitting.map(|q| (p | q) & mask));
            }
            expected.sort_unstable();
            for kernel in Kernel::available() {
                let mut keys = Vec::new();
                QJoin::new(kernel).join(&[1, 1, 1], &[2], 3, &mut keys);
                QJoin::new(kernel).join(&left, &right, mask, &mut keys);
                keys.sort_unstable();
                prop_assert_eq!(&keys, &expected, "{}", kernel);
                let count = QJoin::new(kernel).count(&left, &right);
                prop_assert_eq!(count + 3, expected.len(), "{}", kernel);
            }
        }
    }
}
