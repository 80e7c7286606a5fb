//! QJoin: half boards from pairs of quarter boards that fit.

use crate::kernel::{Kernel, KernelName};

/// Keys of half boards, in a buffer that outlives them.
#[derive(Debug)]
pub(crate) struct Keys {
    kernel: Kernel,
    /// At least [`SLACK`] longer than any list.
    buffer: Vec<u64>,
    len: usize,
    /// Quarter boards that a middle queen allows.
    allowed: Vec<u64>,
}

/// Words that a vector kernel may write past the last key.
const SLACK: usize = 8;

/// Which bits of `p | q` are kept, and the lists that p and q are taken from.
#[derive(Clone, Copy)]
struct Pairs<'a> {
    outer: &'a [u64],
    inner: &'a [u64],
    mask: u64,
}

impl Keys {
    /// No keys.
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            buffer: Vec::new(),
            len: 0,
            allowed: Vec::new(),
        }
    }

    /// Drops all keys and makes room for `room`.
    pub(crate) fn clear(&mut self, room: usize) {
        self.len = 0;
        if self.buffer.len() < room + SLACK {
            // Freed first, so that both are never held; zeroed pages cost memory only when written.
            self.buffer = Vec::new();
            self.buffer = vec![0; room + room / 4 + SLACK];
        }
    }

    /// All keys.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.buffer[..self.len]
    }

    /// Adds `(p | q) & mask` for every p and q of the lists that attack no common diagonal.
    ///
    /// # Panics
    /// If there is no room for all pairs.
    pub(crate) fn join(&mut self, left: &[u64], right: &[u64], mask: u64) {
        let vectors = |outer: &[u64], inner: &[u64]| outer.len() * inner.len().div_ceil(8);
        let (outer, inner) = if vectors(left, right) <= vectors(right, left) {
            (left, right)
        } else {
            (right, left)
        };
        let room = &mut self.buffer[self.len..];
        assert!(
            outer.len() * inner.len() + SLACK <= room.len(),
            "no room for half boards"
        );
        let pairs = Pairs { outer, inner, mask };
        self.len += match self.kernel.name() {
            KernelName::Scalar | KernelName::Neon => join_scalar(pairs, room),
            // SAFETY: a `Kernel` exists only after its features were seen on this CPU; the room was
            // checked above.
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx2 => unsafe { join_avx2(pairs, room.as_mut_ptr()) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx512 => unsafe { join_avx512(pairs, room.as_mut_ptr()) },
            #[cfg(not(target_arch = "x86_64"))]
            KernelName::Avx2 | KernelName::Avx512 => join_scalar(pairs, room),
        };
    }

    /// As `join`, but with the diagonals of a middle queen: only boards that it allows, and `queen`
    /// added to each key.
    pub(crate) fn join_beside(&mut self, queen: u64, left: &[u64], right: &[u64], mask: u64) {
        let mut allowed = std::mem::take(&mut self.allowed);
        allowed.clear();
        allowed.extend(left.iter().filter(|&&p| p & queen == 0).map(|p| p | queen));
        self.join(&allowed, right, mask);
        self.allowed = allowed;
    }
}

fn join_scalar(pairs: Pairs<'_>, room: &mut [u64]) -> usize {
    let mut len = 0;
    for &p in pairs.outer {
        let room = &mut room[len..len + pairs.inner.len()];
        let mut fitting = 0;
        for &q in pairs.inner {
            // Written in any case, kept if it fits: no branch to predict.
            room[fitting] = (p | q) & pairs.mask;
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
        fn every_kernel_finds_the_pairs_that_fit(
            left in list(), right in list(), queen in any::<u64>(), beside in any::<bool>(),
        ) {
            let mask = u64::MAX >> 3;
            let queen = if beside { queen & queen >> 7 & queen >> 13 } else { 0 };
            let mut expected = Vec::new();
            for &p in &left {
                let fitting = right.iter().filter(|&&q| p & q == 0 && (p | q) & queen == 0);
                expected.extend(fitting.map(|q| (p | q | queen) & mask));
            }
            expected.sort_unstable();
            for kernel in Kernel::available() {
                let mut keys = Keys::new(kernel);
                keys.clear(3 + left.len() * right.len());
                keys.join(&[1, 1, 1], &[2], mask);
                if beside {
                    keys.join_beside(queen, &left, &right, mask);
                } else {
                    keys.join(&left, &right, mask);
                }
                let mut found = keys.as_slice().to_vec();
                found.sort_unstable();
                let mut expected = expected.clone();
                expected.extend([3; 3]);
                expected.sort_unstable();
                prop_assert_eq!(&found, &expected, "{}", kernel);
            }
        }
    }
}
