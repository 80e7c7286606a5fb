//! Sixteen lanes of 32 bits: AVX-512 on x86-64.
//!
//! SAFETY, for every block below: only work on this set calls it, and its token proves the CPU's
//! features.

use std::arch::x86_64::*;

use super::lanes::{CacheLine, Lanes, Sixteen, States, low_halves};

/// 512-bit vectors; exist only on CPUs with AVX-512 F and POPCNT.
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

    instructions! {
        fn splat(self, value: u32) -> __m512i { _mm512_set1_epi32(value.cast_signed()) }
        fn xor(self, a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        fn lowest(self, a: __m512i) -> __m512i {
            _mm512_and_si512(a, _mm512_sub_epi32(_mm512_setzero_si512(), a))
        }
        fn or_shift_up(self, a: __m512i, b: __m512i, by: u32) -> __m512i {
            _mm512_sllv_epi32(_mm512_or_si512(a, b), self.splat(by))
        }
        fn or_shift_down(self, a: __m512i, b: __m512i, by: u32) -> __m512i {
            _mm512_srlv_epi32(_mm512_or_si512(a, b), self.splat(by))
        }
        fn without(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            _mm512_ternarylogic_epi32::<0x10>(a, b, c)
        }
        fn and(self, a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn nonzero(self, a: __m512i) -> __mmask16 { _mm512_test_epi32_mask(a, a) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> __m512i {
        // SAFETY: see the module; the caller vouches for sixteen elements.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    fn both(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }

    #[inline(always)]
    fn count(self, mask: __mmask16) -> usize {
        mask.count_ones() as usize
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: __m512i, mask: __mmask16) {
        // Compressed in a register and stored whole: compressing stores are microcoded on AMD CPUs.
        //
        // SAFETY: see the module; the caller vouches for sixteen elements.
        unsafe { _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask, a)) }
    }
}

/// Implements [`Lanes`] for one width; the intrinsics differ in their names alone.
macro_rules! lanes {
    (
        $(#[$doc:meta])* $name:ident($vector:ty), $lanes:literal lanes, half $half:ident,
        $zero:ident, $splat:ident, $load:ident, $store:ident, $or:ident, $and:ident, $xor:ident,
        $sll:ident, $srl:ident, $ternary:ident, $testn:ident, $add_if:ident,
        $counts:ident, $bytes:ident, $srl16:ident, $shuffle:ident, $add8:ident, $sad:ident, $add:ident,
        $differ:ident
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name($vector);

        impl Lanes for $name {
            type Half = $half;

            const LANES: usize = $lanes;
            const EXTRACTS: bool = true;

            instructions! {
                fn extract(word: u64, mask: u64) -> u64 { _pext_u64(word, mask) }
                fn zero() -> Self { Self($zero()) }
                fn splat(lane: u32) -> Self { Self($splat(lane.cast_signed())) }
                fn or(self, other: Self) -> Self { Self($or(self.0, other.0)) }
                fn and(self, other: Self) -> Self { Self($and(self.0, other.0)) }
                fn xor(self, other: Self) -> Self { Self($xor(self.0, other.0)) }
                fn shr<const BY: i32>(self) -> Self { Self($srl(self.0, _mm_cvtsi32_si128(BY))) }
                fn or3(a: Self, b: Self, c: Self) -> Self { Self($ternary::<0xfe>(a.0, b.0, c.0)) }
                fn is_full(self) -> bool { $differ(self.0, Self::splat(u32::MAX).0) == 0 }
            }

            #[inline(always)]
            fn prefetch<T>(of: *const T) {
                // SAFETY: see the module; any address may be prefetched.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(of.cast()) }
            }

            #[inline(always)]
            unsafe fn stream(line: &CacheLine, to: &mut CacheLine) {
                // SAFETY: see the module; lines are aligned, and the caller vouches for the order.
                unsafe {
                    let words = _mm512_load_si512((&raw const *line).cast());
                    _mm512_stream_si512((&raw mut *to).cast(), words);
                }
            }

            #[inline(always)]
            fn end_streams() {
                // SAFETY: see the module.
                unsafe { _mm_sfence() }
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
            fn shl<const BY: i32>(self) -> Self {
                // SAFETY: see the module. The count is a constant, so it becomes an immediate.
                Self(unsafe { $sll(self.0, _mm_cvtsi32_si128(BY)) })
            }

            #[inline(always)]
            fn exchange<const BY: i32>(a: Self, b: Self) -> (Self, Self) {
                // SAFETY: see the module. The first operand chooses between the others.
                unsafe {
                    let low = Self::splat(low_halves(BY)).0;
                    (
                        Self($ternary::<0xca>(low, a.0, b.shl::<BY>().0)),
                        Self($ternary::<0xca>(low, a.shr::<BY>().0, b.0)),
                    )
                }
            }

            #[inline(always)]
            fn carry_save(a: Self, b: Self, c: Self) -> (Self, Self) {
                // SAFETY: see the module.
                unsafe {
                    (
                        Self($ternary::<0xe8>(a.0, b.0, c.0)),
                        Self($ternary::<0x96>(a.0, b.0, c.0)),
                    )
                }
            }

            #[inline(always)]
            unsafe fn divide(sixteen: Sixteen) -> u16 {
                // SAFETY: see the module; the caller vouches for the lists.
                unsafe { divide(sixteen) }
            }

            #[inline(always)]
            fn add_ones(self, sums: Self) -> Self {
                // SAFETY: see the module. A table of 16 nibble counts, looked up for both nibbles:
                // some CPUs with 512-bit vectors lack the instruction that counts ones (VPOPCNTDQ),
                // and after carry-save addition one vector in eight is counted.
                unsafe {
                    let counts = $counts(_mm_setr_epi8(
                        0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
                    ));
                    let nibble = $bytes(15);
                    let low = $and(self.0, nibble);
                    let high = $and($srl16::<4>(self.0), nibble);
                    let ones = $add8($shuffle(counts, low), $shuffle(counts, high));
                    Self($add(sums.0, $sad(ones, $zero())))
                }
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
    Avx512Bits(__m512i), 16 lanes, half Avx512HalfBits,
    _mm512_setzero_si512, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_or_si512, _mm512_and_si512, _mm512_xor_si512, _mm512_sll_epi32, _mm512_srl_epi32,
    _mm512_ternarylogic_epi64, _mm512_testn_epi32_mask, _mm512_mask_add_epi32,
    _mm512_broadcast_i32x4, _mm512_set1_epi8, _mm512_srli_epi16, _mm512_shuffle_epi8,
    _mm512_add_epi8, _mm512_sad_epu8, _mm512_add_epi64,
    _mm512_cmpneq_epi32_mask
}

lanes! {
    /// Eight 32-bit lanes, for the ends of lists.
    Avx512HalfBits(__m256i), 8 lanes, half Self,
    _mm256_setzero_si256, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm256_or_si256, _mm256_and_si256, _mm256_xor_si256, _mm256_sll_epi32, _mm256_srl_epi32,
    _mm256_ternarylogic_epi64, _mm256_testn_epi32_mask, _mm256_mask_add_epi32,
    _mm256_broadcastsi128_si256, _mm256_set1_epi8, _mm256_srli_epi16, _mm256_shuffle_epi8,
    _mm256_add_epi8, _mm256_sad_epu8, _mm256_add_epi64,
    _mm256_cmpneq_epi32_mask
}

/// Implements [`Lanes::divide`].
///
/// # Safety
/// As for that; and the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn divide(sixteen: Sixteen) -> u16 {
    let bit = 1_u32 << sixteen.bit;
    let below = _mm512_set1_epi32((bit - 1).cast_signed());
    // SAFETY: the caller vouches for the keys.
    let keys = unsafe { _mm512_loadu_si512(sixteen.keys.cast()) };
    let ones = _mm512_test_epi32_mask(keys, _mm512_set1_epi32(bit.cast_signed()));
    // Bits in `below` are kept, the others come from above.
    let keys = _mm512_ternarylogic_epi32::<0xca>(below, keys, _mm512_srli_epi32::<1>(keys));
    let marked = _mm512_or_si512(keys, _mm512_set1_epi32(i32::MIN));
    // SAFETY: the caller vouches for the places.
    unsafe {
        let without = _mm512_maskz_compress_epi32(!ones, keys);
        _mm512_storeu_si512(sixteen.without.cast(), without);
        let with = _mm512_maskz_compress_epi32(ones, marked);
        _mm512_storeu_si512(sixteen.with.cast(), with);
    }
    ones
}
