//! Leaves on 512-bit vectors of x86-64.
//!
//! SAFETY, for every block below: the methods are reached only by work on the set of this name, whose token
//! proves that the CPU has the features.

use std::arch::x86_64::*;

use crate::simd::{
    lanes::{Lanes, Line, Sixteen, Split, low_halves},
    rest::Rest,
};

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
            const SPLITS: bool = true;


            #[inline(always)]
            fn extract(word: u64, mask: u64) -> u64 {
                // SAFETY: see the module.
                unsafe { _pext_u64(word, mask) }
            }

            #[inline(always)]
            unsafe fn split<F: Rest, T: Rest>(split: Split<F, T>) -> usize {
                // SAFETY: see the module; the caller vouches for the lists.
                unsafe {
                    match (F::WORDS, T::WORDS) {
                        (1, _) => split_short(cast(split)),
                        (_, 1) => split_narrow(cast(split)),
                        (_, _) => split_long(cast(split)),
                    }
                }
            }

            #[inline(always)]
            fn prefetch<T>(of: *const T) {
                // SAFETY: see the module; any address may be prefetched.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(of.cast()) }
            }

            #[inline(always)]
            unsafe fn stream(line: &Line, to: &mut Line) {
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
            fn or3(a: Self, b: Self, c: Self) -> Self {
                // SAFETY: see the module.
                Self(unsafe { $ternary::<0xfe>(a.0, b.0, c.0) })
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
            fn is_full(self) -> bool {
                // SAFETY: see the module.
                unsafe { $differ(self.0, Self::splat(u32::MAX).0) == 0 }
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

/// As [`Lanes::divide`].
///
/// # Safety
/// Its; and the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn divide(sixteen: Sixteen) -> u16 {
    let bit = 1_u32 << sixteen.bit;
    let below = _mm512_set1_epi32((bit - 1).cast_signed());
    // SAFETY: the caller vouches for the keys.
    let keys = unsafe { _mm512_loadu_si512(sixteen.keys.cast()) };
    let ones = _mm512_test_epi32_mask(keys, _mm512_set1_epi32(bit.cast_signed()));
    // What `below` has is kept, the other bits come from above.
    let keys = _mm512_ternarylogic_epi32::<0xca>(below, keys, _mm512_srli_epi32::<1>(keys));
    let parked = _mm512_or_si512(keys, _mm512_set1_epi32(i32::MIN));
    // SAFETY: the caller vouches for the places.
    unsafe {
        let without = _mm512_maskz_compress_epi32(!ones, keys);
        _mm512_storeu_si512(sixteen.without.cast(), without);
        let with = _mm512_maskz_compress_epi32(ones, parked);
        _mm512_storeu_si512(sixteen.with.cast(), with);
    }
    ones
}

/// The same split, of the types that its words are known to have.
#[inline(always)]
fn cast<F, T, G, U>(split: Split<F, T>) -> Split<G, U> {
    Split {
        keys: split.keys.cast(),
        length: split.length,
        bit: split.bit,
        without: split.without.cast(),
        with: split.with.cast(),
    }
}

/// Defines a function with the contract of [`Lanes::split`] for one pair of types.
///
/// Lanes are packed in a register and stored whole: packing stores are slow on some CPUs. In place,
/// what is stored of a whole vector ends no later than what was read; of the last, partial one only
/// its own keys are stored.
macro_rules! split {
    (
        $name:ident($from:ty, $to:ty), $lanes:literal lanes by $mask:ty,
        $splat:ident, $load:ident, $test:ident, $testn:ident, $srl:ident, $ternary:ident,
        $narrow:path, $compress:ident, $store:ident, $store_some:ident
    ) => {
        /// # Safety
        /// That of [`Lanes::split`]; and the CPU has the features.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
        unsafe fn $name(split: Split<$from, $to>) -> usize {
            let bit = (1 as $from) << split.bit;
            let (below, bit) = ($splat((bit - 1).cast_signed()), $splat(bit.cast_signed()));
            let by_one = _mm_cvtsi32_si128(1);
            let (mut without, mut with) = (0, 0);
            // The lanes without and with the bit, and their keys.
            let part = |at: usize, lanes: $mask| {
                // SAFETY: the caller chooses lanes within the list.
                let keys = unsafe { $load(lanes, split.keys.add(at).cast()) };
                let (clear, set) = ($testn(lanes, keys, bit), $test(lanes, keys, bit));
                // What `below` has is kept, the other bits come from above.
                let keys = $narrow($ternary::<0xca>(below, keys, $srl(keys, by_one)));
                ((clear, $compress(clear, keys)), (set, $compress(set, keys)))
            };
            let mut at = 0;
            while at + $lanes <= split.length {
                // SAFETY: see above.
                unsafe {
                    let ((clear, keys), (set, keys_with)) = part(at, <$mask>::MAX);
                    $store(split.without.add(without).cast(), keys);
                    $store(split.with.add(with).cast(), keys_with);
                    without += clear.count_ones() as usize;
                    with += set.count_ones() as usize;
                }
                at += $lanes;
            }
            if at < split.length {
                let ((clear, keys), (_, keys_with)) =
                    part(at, !(<$mask>::MAX << (split.length - at)));
                let own = !(<$mask>::MAX << clear.count_ones());
                // SAFETY: see above.
                unsafe {
                    $store_some(split.without.add(without).cast(), own, keys);
                    $store(split.with.add(with).cast(), keys_with);
                }
                without += clear.count_ones() as usize;
            }
            without
        }
    };
}

split! {
    split_long(u64, u64), 8 lanes by u8,
    _mm512_set1_epi64, _mm512_maskz_loadu_epi64, _mm512_mask_test_epi64_mask,
    _mm512_mask_testn_epi64_mask, _mm512_srl_epi64, _mm512_ternarylogic_epi64,
    std::convert::identity, _mm512_maskz_compress_epi64, _mm512_storeu_si512, _mm512_mask_storeu_epi64
}

split! {
    split_narrow(u64, u32), 8 lanes by u8,
    _mm512_set1_epi64, _mm512_maskz_loadu_epi64, _mm512_mask_test_epi64_mask,
    _mm512_mask_testn_epi64_mask, _mm512_srl_epi64, _mm512_ternarylogic_epi64,
    _mm512_cvtepi64_epi32, _mm256_maskz_compress_epi32, _mm256_storeu_si256, _mm256_mask_storeu_epi32
}

split! {
    split_short(u32, u32), 16 lanes by u16,
    _mm512_set1_epi32, _mm512_maskz_loadu_epi32, _mm512_mask_test_epi32_mask,
    _mm512_mask_testn_epi32_mask, _mm512_srl_epi32, _mm512_ternarylogic_epi32,
    std::convert::identity, _mm512_maskz_compress_epi32, _mm512_storeu_si512, _mm512_mask_storeu_epi32
}
