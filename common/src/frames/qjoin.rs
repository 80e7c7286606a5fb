//! QJoin: half boards from pairs of quarter boards that fit.

use std::mem::MaybeUninit;

use crate::kernel::{Kernel, KernelName};

/// Makes keys out of pairs of keys that fit, on one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QJoin {
    kernel: Kernel,
}

/// Words that a vector kernel may write past the last key.
const SLACK: usize = 8;

/// The lists that p and q are taken from, and which bits of `p | q` are kept.
#[derive(Clone, Copy)]
struct Pairs<'a> {
    outer: &'a [u64],
    inner: &'a [u64],
    mask: u64,
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
        keys.reserve(outer.len() * inner.len() + SLACK);
        let room = keys.spare_capacity_mut();
        let pairs = Pairs { outer, inner, mask };
        let fitting = match self.kernel.name() {
            KernelName::Scalar | KernelName::Neon => join_scalar(pairs, room),
            // SAFETY: a `Kernel` exists only after its features were seen on this CPU; the room was
            // made above.
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx2 => unsafe { join_avx2(pairs, room.as_mut_ptr().cast()) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx512 => unsafe { join_avx512(pairs, room.as_mut_ptr().cast()) },
            #[cfg(not(target_arch = "x86_64"))]
            KernelName::Avx2 | KernelName::Avx512 => join_scalar(pairs, room),
        };
        // SAFETY: every kernel wrote so many words to the room behind the keys.
        unsafe { keys.set_len(keys.len() + fitting) };
    }
}

impl QJoin {
    /// How many pairs of p and q there are that attack no common diagonal.
    pub(crate) fn count(self, left: &[u64], right: &[u64]) -> usize {
        let (outer, inner) = if left.len() < right.len() {
            (left, right)
        } else {
            (right, left)
        };
        match self.kernel.name() {
            KernelName::Scalar | KernelName::Neon => count(outer, inner),
            // SAFETY: a `Kernel` exists only after its features were seen on this CPU.
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx2 => unsafe { count_avx2(outer, inner) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx512 => unsafe { count_avx512(outer, inner) },
            #[cfg(not(target_arch = "x86_64"))]
            KernelName::Avx2 | KernelName::Avx512 => count(outer, inner),
        }
    }
}

/// A loop that compilers turn into whatever vectors the target has.
#[inline(always)]
fn count(outer: &[u64], inner: &[u64]) -> usize {
    let mut all = 0;
    for &p in outer {
        let fitting: u64 = inner.iter().map(|&q| u64::from(p & q == 0)).sum();
        all += fitting;
    }
    usize::try_from(all).expect("no more than pairs in memory")
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn count_avx2(outer: &[u64], inner: &[u64]) -> usize {
    count(outer, inner)
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
unsafe fn count_avx512(outer: &[u64], inner: &[u64]) -> usize {
    count(outer, inner)
}

fn join_scalar(pairs: Pairs<'_>, room: &mut [MaybeUninit<u64>]) -> usize {
    let mut len = 0;
    for &p in pairs.outer {
        let room = &mut room[len..len + pairs.inner.len()];
        let mut fitting = 0;
        for &q in pairs.inner {
            // Written in any case, kept if it fits: no branch to predict.
            room[fitting].write((p | q) & pairs.mask);
            fitting += usize::from(p & q == 0);
        }
        len += fitting;
    }
    len
}

/// For each set of the four lanes, the 32-bit halves of its lanes in order, then anything.
#[cfg(target_arch = "x86_64")]
static COMPRESS: [[u32; 8]; 16] = {
    let mut table = [[0; 8]; 16];
    let mut set = 0;
    while set < 16 {
        let (mut lane, mut place) = (0, 0);
        while lane < 4 {
            if set >> lane & 1 == 1 {
                table[set][place] = 2 * lane;
                table[set][place + 1] = 2 * lane + 1;
                place += 2;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

/// # Safety
/// `out` is writable for as many words as there are pairs, and [`SLACK`] more.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn join_avx2(pairs: Pairs<'_>, out: *mut u64) -> usize {
    use std::arch::x86_64::*;

    let (vectors, tail) = pairs.inner.as_chunks::<4>();
    let mask = _mm256_set1_epi64x(pairs.mask.cast_signed());
    let mut len = 0;
    for &p in pairs.outer {
        let p_lanes = _mm256_set1_epi64x(p.cast_signed());
        for vector in vectors {
            // SAFETY: four words are read; four are written at a place that no more than all pairs
            // precede.
            unsafe {
                let q = _mm256_loadu_si256(vector.as_ptr().cast());
                let meet = _mm256_and_si256(p_lanes, q);
                let fits = _mm256_cmpeq_epi64(meet, _mm256_setzero_si256());
                let fits = _mm256_movemask_pd(_mm256_castsi256_pd(fits)).cast_unsigned();
                let both = _mm256_and_si256(_mm256_or_si256(p_lanes, q), mask);
                let order = _mm256_loadu_si256(COMPRESS[fits as usize & 15].as_ptr().cast());
                let packed = _mm256_permutevar8x32_epi32(both, order);
                _mm256_storeu_si256(out.add(len).cast(), packed);
                len += fits.count_ones() as usize;
            }
        }
        for &q in tail {
            // SAFETY: as above, for one word.
            unsafe { *out.add(len) = (p | q) & pairs.mask };
            len += usize::from(p & q == 0);
        }
    }
    len
}

/// # Safety
/// As for [`join_avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
unsafe fn join_avx512(pairs: Pairs<'_>, out: *mut u64) -> usize {
    use std::arch::x86_64::*;

    let (vectors, tail) = pairs.inner.as_chunks::<8>();
    let mask = _mm512_set1_epi64(pairs.mask.cast_signed());
    let tail_lanes = (1u8 << tail.len()) - 1;
    // SAFETY: lanes outside the tail are not read.
    let tail = unsafe { _mm512_maskz_loadu_epi64(tail_lanes, tail.as_ptr().cast()) };
    let mut len = 0;
    for &p in pairs.outer {
        let p = _mm512_set1_epi64(p.cast_signed());
        // Packed in a register and stored whole: packing stores are slow on some CPUs.
        let pack = |q, lanes| {
            let fits = _mm512_mask_testn_epi64_mask(lanes, p, q);
            let both = _mm512_and_si512(_mm512_or_si512(p, q), mask);
            (
                _mm512_maskz_compress_epi64(fits, both),
                fits.count_ones() as usize,
            )
        };
        for vector in vectors {
            // SAFETY: eight words are read; eight are written at a place that no more than all pairs
            // precede.
            unsafe {
                let (packed, fitting) = pack(_mm512_loadu_si512(vector.as_ptr().cast()), u8::MAX);
                _mm512_storeu_si512(out.add(len).cast(), packed);
                len += fitting;
            }
        }
        if tail_lanes != 0 {
            let (packed, fitting) = pack(tail, tail_lanes);
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(out.add(len).cast(), packed) };
            len += fitting;
        }
    }
    len
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
