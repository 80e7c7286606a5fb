//! Eight lanes of 32 bits: AVX2 on x86-64.

use std::arch::x86_64::*;

use super::states::States;

/// 256-bit vectors. Exists only where the CPU has AVX2 and POPCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

/// Flags as values: a lane is flagged where it is not zero. The comparison is left to whoever
/// needs bits, so that several flags meet in one minimum each and are compared once.
#[derive(Clone, Copy)]
pub(crate) struct Flags(__m256i);

impl Avx2 {
    /// # Safety
    /// The CPU has AVX2 and POPCNT.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Flags {
    /// One bit a lane.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[inline(always)]
    unsafe fn bits(self) -> usize {
        // SAFETY: the caller vouches for AVX2.
        let zero = unsafe {
            let zero = _mm256_cmpeq_epi32(self.0, _mm256_setzero_si256());
            _mm256_movemask_ps(_mm256_castsi256_ps(zero))
        };
        (zero.cast_unsigned() ^ 0xff) as usize
    }
}

/// For every set of flagged lanes the lanes in the order in which they are to lie: the flagged ones
/// first.
static ORDER: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut set = 0;
    while set < table.len() {
        let (mut lane, mut to) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                table[set][to] = lane;
                to += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

// Every method: the CPU has the instructions, since an `Avx2` exists.
impl States for Avx2 {
    const WIDTH: usize = 8;
    const AHEAD: usize = 2;
    type Vector = __m256i;
    type Mask = Flags;

    #[inline(always)]
    unsafe fn splat(self, value: u32) -> __m256i {
        // SAFETY: as said above.
        unsafe { _mm256_set1_epi32(value.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> __m256i {
        // SAFETY: as said above; the caller vouches for eight elements.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as said above.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn lowest(self, a: __m256i) -> __m256i {
        // SAFETY: as said above.
        unsafe { _mm256_and_si256(a, _mm256_sub_epi32(_mm256_setzero_si256(), a)) }
    }

    #[inline(always)]
    unsafe fn or_shift_up(self, a: __m256i, b: __m256i, by: u32) -> __m256i {
        // SAFETY: as said above.
        unsafe { _mm256_sllv_epi32(_mm256_or_si256(a, b), self.splat(by)) }
    }

    #[inline(always)]
    unsafe fn or_shift_down(self, a: __m256i, b: __m256i, by: u32) -> __m256i {
        // SAFETY: as said above.
        unsafe { _mm256_srlv_epi32(_mm256_or_si256(a, b), self.splat(by)) }
    }

    #[inline(always)]
    unsafe fn without(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // SAFETY: as said above.
        unsafe { _mm256_andnot_si256(_mm256_or_si256(b, c), a) }
    }

    #[inline(always)]
    unsafe fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as said above.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn nonzero(self, a: __m256i) -> Flags {
        Flags(a)
    }

    #[inline(always)]
    unsafe fn both(self, a: Flags, b: Flags) -> Flags {
        // SAFETY: as said above.
        Flags(unsafe { _mm256_min_epu32(a.0, b.0) })
    }

    #[inline(always)]
    unsafe fn count(self, mask: Flags) -> usize {
        // SAFETY: as said above.
        unsafe { mask.bits() }.count_ones() as usize
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: __m256i, mask: Flags) {
        // SAFETY: as said above; the table has a row for every eight bits, of eight bytes; the
        // caller vouches for eight elements.
        unsafe {
            let order = _mm_loadl_epi64(ORDER.as_ptr().add(mask.bits()).cast());
            let packed = _mm256_permutevar8x32_epi32(a, _mm256_cvtepu8_epi32(order));
            _mm256_storeu_si256(to.cast(), packed);
        }
    }
}
