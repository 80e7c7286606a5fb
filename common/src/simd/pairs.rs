//! Disjoint pairs of words.

/// Words that may be written past the last result.
pub(crate) const PAIRS_SLACK: usize = 8;

/// Lists of p and q, and the bits of `p | q` to keep.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a> {
    pub(crate) outer: &'a [u64],
    pub(crate) inner: &'a [u64],
    pub(crate) mask: u64,
}

/// Implements [`super::Set::fitting`] on plain words.
///
/// # Safety
/// `out` is writable for as many words as there are pairs, and [`PAIRS_SLACK`] more.
pub(super) unsafe fn fitting(pairs: Pairs<'_>, out: *mut u64) -> usize {
    let mut len = 0;
    for &p in pairs.outer {
        for &q in pairs.inner {
            // Writes every pair and keeps it if it fits, so that there is no branch to predict.
            //
            // SAFETY: fewer words precede this one than there are pairs.
            unsafe { out.add(len).write((p | q) & pairs.mask) };
            len += usize::from(p & q == 0);
        }
    }
    len
}

/// The 32-bit halves, in order, of the lanes in each subset of four lanes.
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
/// `out` is writable for as many words as there are pairs, and [`PAIRS_SLACK`] more.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn fitting_avx2(pairs: Pairs<'_>, out: *mut u64) -> usize {
    use std::arch::x86_64::*;

    let (vectors, tail) = pairs.inner.as_chunks::<4>();
    let mask = _mm256_set1_epi64x(pairs.mask.cast_signed());
    let mut len = 0;
    for &p in pairs.outer {
        let p_lanes = _mm256_set1_epi64x(p.cast_signed());
        for vector in vectors {
            // SAFETY: four words are read; four are written, preceded by fewer words than there are pairs.
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
/// As for [`fitting_avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(super) unsafe fn fitting_avx512(pairs: Pairs<'_>, out: *mut u64) -> usize {
    use std::arch::x86_64::*;

    let (vectors, tail) = pairs.inner.as_chunks::<8>();
    let mask = _mm512_set1_epi64(pairs.mask.cast_signed());
    let tail_lanes = (1u8 << tail.len()) - 1;
    // SAFETY: lanes outside the tail are not read.
    let tail = unsafe { _mm512_maskz_loadu_epi64(tail_lanes, tail.as_ptr().cast()) };
    let mut len = 0;
    for &p in pairs.outer {
        let p = _mm512_set1_epi64(p.cast_signed());
        // Compresses in a register and stores it whole: compressing stores are slow on some CPUs.
        let pack = |q, lanes| {
            let fits = _mm512_mask_testn_epi64_mask(lanes, p, q);
            let both = _mm512_and_si512(_mm512_or_si512(p, q), mask);
            (_mm512_maskz_compress_epi64(fits, both), fits.count_ones() as usize)
        };
        for vector in vectors {
            // SAFETY: eight words are read; eight are written, preceded by fewer words than there
            // are pairs.
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
