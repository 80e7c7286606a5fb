//! Sixteen lanes of 32 bits: AVX-512 on x86-64.

use std::arch::x86_64::*;

use super::states::States;

/// 512-bit vectors. Exists only where the CPU has AVX-512 F and POPCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The CPU has AVX-512 F and POPCNT.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

// Every method: the CPU has the instructions, since an `Avx512` exists.
impl States for Avx512 {
    const WIDTH: usize = 16;
    const AHEAD: usize = 2;
    type Vector = __m512i;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn splat(self, value: u32) -> __m512i {
        // SAFETY: as said above.
        unsafe { _mm512_set1_epi32(value.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> __m512i {
        // SAFETY: as said above; the caller vouches for sixteen elements.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as said above.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn lowest(self, a: __m512i) -> __m512i {
        // SAFETY: as said above.
        unsafe { _mm512_and_si512(a, _mm512_sub_epi32(_mm512_setzero_si512(), a)) }
    }

    #[inline(always)]
    unsafe fn or_shift_up(self, a: __m512i, b: __m512i, by: u32) -> __m512i {
        // SAFETY: as said above.
        unsafe { _mm512_sllv_epi32(_mm512_or_si512(a, b), self.splat(by)) }
    }

    #[inline(always)]
    unsafe fn or_shift_down(self, a: __m512i, b: __m512i, by: u32) -> __m512i {
        // SAFETY: as said above.
        unsafe { _mm512_srlv_epi32(_mm512_or_si512(a, b), self.splat(by)) }
    }

    #[inline(always)]
    unsafe fn without(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: as said above.
        unsafe { _mm512_ternarylogic_epi32::<0x10>(a, b, c) }
    }

    #[inline(always)]
    unsafe fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as said above.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn nonzero(self, a: __m512i) -> __mmask16 {
        // SAFETY: as said above.
        unsafe { _mm512_test_epi32_mask(a, a) }
    }

    #[inline(always)]
    unsafe fn both(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }

    #[inline(always)]
    unsafe fn count(self, mask: __mmask16) -> usize {
        mask.count_ones() as usize
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: __m512i, mask: __mmask16) {
        // Compressing in a register and storing all of it: the form that compresses into memory
        // runs from microcode on AMD's CPUs.
        // SAFETY: as said above; the caller vouches for sixteen elements.
        unsafe { _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask, a)) }
    }
}
