//! Leaves on 512-bit vectors of x86-64.
//!
//! SAFETY, for every block below: the methods are reached only through [`super::on_avx512`], whose
//! caller proves with a `Kernel` that the CPU has the features.

use std::arch::x86_64::*;

use super::lanes::Lanes;

/// Implements [`Lanes`] for one width; the intrinsics differ in their names alone.
macro_rules! lanes {
    (
        $(#[$doc:meta])* $name:ident($vector:ty), $lanes:literal lanes, half $half:ident,
        $zero:ident, $splat:ident, $load:ident, $store:ident, $or:ident, $and:ident, $xor:ident,
        $sll:ident, $srl:ident, $ternary:ident, $add:ident, $popcnt:ident, $testn:ident, $add_if:ident
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(super) struct $name($vector);

        impl Lanes for $name {
            type Half = $half;

            const LANES: usize = $lanes;
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
                Self(unsafe { $zero() })
            }

            #[inline(always)]
            fn splat(lane: u32) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $splat(lane.cast_signed()) })
            }

            #[inline(always)]
            unsafe fn load(from: *const u32) -> Self {
                // SAFETY: see the module; the caller vouches for the bytes.
                Self(unsafe { $load(from.cast()) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u32) {
                // SAFETY: see the module; the caller vouches for the bytes.
                unsafe { $store(to.cast(), self.0) }
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $or(self.0, other.0) })
            }

            #[inline(always)]
            fn and(self, other: Self) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $and(self.0, other.0) })
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $xor(self.0, other.0) })
            }

            #[inline(always)]
            fn shl<const BY: i32>(self) -> Self {
                // SAFETY: see the module. The compiler knows the count and makes it an immediate.
                Self(unsafe { $sll(self.0, _mm_cvtsi32_si128(BY)) })
            }

            #[inline(always)]
            fn shr<const BY: i32>(self) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $srl(self.0, _mm_cvtsi32_si128(BY)) })
            }

            #[inline(always)]
            fn or3(a: Self, b: Self, c: Self) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $ternary::<0xfe>(a.0, b.0, c.0) })
            }

            #[inline(always)]
            fn add_ones(self, sums: Self) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $add(sums.0, $popcnt(self.0)) })
            }

            #[inline(always)]
            fn add_disjoint(self, other: Self, counts: Self) -> Self {
                // SAFETY: see the module.
                unsafe {
                    let none = $testn(self.0, other.0);
                    Self($add_if(counts.0, none, counts.0, $splat(1)))
                }
            }
        }
    };
}

lanes! {
    /// Sixteen 32-bit lanes.
    Avx512(__m512i), 16 lanes, half Avx512Half,
    _mm512_setzero_si512, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_or_si512, _mm512_and_si512, _mm512_xor_si512, _mm512_sll_epi32, _mm512_srl_epi32,
    _mm512_ternarylogic_epi64, _mm512_add_epi64, _mm512_popcnt_epi64,
    _mm512_testn_epi32_mask, _mm512_mask_add_epi32
}

lanes! {
    /// Eight 32-bit lanes, for the ends of lists.
    Avx512Half(__m256i), 8 lanes, half Self,
    _mm256_setzero_si256, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm256_or_si256, _mm256_and_si256, _mm256_xor_si256, _mm256_sll_epi32, _mm256_srl_epi32,
    _mm256_ternarylogic_epi64, _mm256_add_epi64, _mm256_popcnt_epi64,
    _mm256_testn_epi32_mask, _mm256_mask_add_epi32
}
