//! QJoin: half boards from pairs of quarter boards that fit.

use crate::{
    compute::kernel::Kernel,
    simd::{PAIRS_SLACK, Pairs, Set, Work, dispatch},
};

/// Appends `(p | q) & mask` for every p and q that share no diagonal.
pub(crate) fn join(
    kernel: Kernel,
    (left, right): (&[u64], &[u64]),
    mask: u64,
    keys: &mut Vec<u64>,
) {
    let vectors = |outer: &[u64], inner: &[u64]| outer.len() * inner.len().div_ceil(8);
    let swapped = vectors(left, right) > vectors(right, left);
    let (outer, inner) = if swapped { (right, left) } else { (left, right) };
    let pairs = Pairs { outer, inner, mask };
    dispatch(kernel, Fitting { pairs, keys });
}

/// Counts the pairs of p and q that share no diagonal.
pub(crate) fn count(kernel: Kernel, left: &[u64], right: &[u64]) -> usize {
    let (outer, inner) = if left.len() < right.len() { (left, right) } else { (right, left) };
    dispatch(kernel, CountFitting { outer, inner })
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
        // SAFETY: the capacity was reserved above, and `fitting` words were written.
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

    /// Counts in a loop that the compiler vectorizes for the set.
    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> usize {
        let mut total = 0;
        for &p in self.outer {
            let fitting: u64 = self.inner.iter().map(|&q| u64::from(p & q == 0)).sum();
            total += fitting;
        }
        usize::try_from(total).expect("at most the product of two lengths")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Generates sparse words, so that some pairs fit.
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
                join(kernel, (&[1, 1, 1], &[2]), 3, &mut keys);
                join(kernel, (&left, &right), mask, &mut keys);
                keys.sort_unstable();
                prop_assert_eq!(&keys, &expected, "{}", kernel);
                let count = count(kernel, &left, &right);
                prop_assert_eq!(count + 3, expected.len(), "{}", kernel);
            }
        }
    }
}
