//! Leaves on 512-bit vectors of x86-64.
//!
//! SAFETY, for every block below: the methods are reached only through [`super::on_avx512`], whose
//! caller proves with a `Kernel` that the CPU has the features.

use std::arch::x86_64::*;

use super::lanes::Lanes;

/// Sixteen 32-bit lanes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Avx512(__m512i);

impl Lanes for Avx512 {
    const LANES: usize = 16;
    const CHEAP_ONES: bool = true;

    const EXTRACTS: bool = true;

    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        // SAFETY: see the module.
        unsafe { _pext_u64(word, mask) }
    }

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    fn splat(lane: u32) -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_set1_epi32(lane.cast_signed()) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see the module; the caller vouches for the 64 bytes.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see the module; the caller vouches for the 64 bytes.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_and_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn shl<const BY: i32>(self) -> Self {
        // SAFETY: see the module. The variable shift takes its count from a type's constant.
        Self(unsafe { _mm512_sll_epi32(self.0, _mm_cvtsi32_si128(BY)) })
    }

    #[inline(always)]
    fn shr<const BY: i32>(self) -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_srl_epi32(self.0, _mm_cvtsi32_si128(BY)) })
    }

    #[inline(always)]
    fn or3(a: Self, b: Self, c: Self) -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_ternarylogic_epi64::<0xfe>(a.0, b.0, c.0) })
    }

    #[inline(always)]
    fn carry_save(a: Self, b: Self, c: Self) -> (Self, Self) {
        // SAFETY: see the module. 0xe8 is the majority of three, 0x96 their parity.
        unsafe {
            (
                Self(_mm512_ternarylogic_epi64::<0xe8>(a.0, b.0, c.0)),
                Self(_mm512_ternarylogic_epi64::<0x96>(a.0, b.0, c.0)),
            )
        }
    }

    #[inline(always)]
    fn add_ones(self, sums: Self) -> Self {
        // SAFETY: see the module.
        Self(unsafe { _mm512_add_epi64(sums.0, _mm512_popcnt_epi64(self.0)) })
    }

    #[inline(always)]
    fn add_disjoint(self, other: Self, counts: Self) -> Self {
        // SAFETY: see the module.
        unsafe {
            let none = _mm512_testn_epi32_mask(self.0, other.0);
            Self(_mm512_mask_add_epi32(
                counts.0,
                none,
                counts.0,
                _mm512_set1_epi32(1),
            ))
        }
    }
}
