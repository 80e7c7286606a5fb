//! Four lanes of 32 bits: the 128-bit vectors of WebAssembly.

use std::arch::wasm32::*;

use super::lanes::{BYTE_ORDER, Lanes, States};

/// Token of 128-bit vectors; exists only in modules that contain these instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simd128(());

/// Flags as values: a lane is flagged if it is not zero.
///
/// The comparison is deferred, so that several flags are combined by minimum and compared once.
#[derive(Clone, Copy)]
pub(crate) struct Flags(v128);

impl Simd128 {
    /// # Safety
    /// The module may contain 128-bit vectors.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Flags {
    /// Returns one bit per lane.
    #[inline(always)]
    fn bits(self) -> usize {
        u32x4_bitmask(u32x4_ne(self.0, u32x4_splat(0))).into()
    }
}

impl States for Simd128 {
    const WIDTH: usize = 4;
    const AHEAD: usize = 2;
    type Vector = v128;
    type Mask = Flags;

    inlined! {
        fn splat(self, value: u32) -> v128 { u32x4_splat(value) }
        fn xor(self, a: v128, b: v128) -> v128 { v128_xor(a, b) }
        fn lowest(self, a: v128) -> v128 { v128_and(a, i32x4_neg(a)) }
        fn or_shift_up(self, a: v128, b: v128, by: u32) -> v128 { u32x4_shl(v128_or(a, b), by) }
        fn or_shift_down(self, a: v128, b: v128, by: u32) -> v128 { u32x4_shr(v128_or(a, b), by) }
        fn without(self, a: v128, b: v128, c: v128) -> v128 { v128_andnot(a, v128_or(b, c)) }
        fn and(self, a: v128, b: v128) -> v128 { v128_and(a, b) }
        fn nonzero(self, a: v128) -> Flags { Flags(a) }
        fn both(self, a: Flags, b: Flags) -> Flags { Flags(u32x4_min(a.0, b.0)) }
        fn count(self, mask: Flags) -> usize { mask.bits().count_ones() as usize }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> v128 {
        // SAFETY: the caller vouches for four elements.
        unsafe { v128_load(from.cast()) }
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: v128, mask: Flags) {
        // SAFETY: the table has a row for every set of lanes; the caller vouches for four elements.
        unsafe {
            let order = v128_load(BYTE_ORDER.as_ptr().add(mask.bits()).cast());
            v128_store(to.cast(), i8x16_swizzle(a, order));
        }
    }
}

/// Four 32-bit lanes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Simd128Bits(v128);

impl Lanes for Simd128Bits {
    const LANES: usize = 4;

    inlined! {
        fn zero() -> Self { Self::splat(0) }
        fn splat(lane: u32) -> Self { Self(u32x4_splat(lane)) }
        fn or(self, other: Self) -> Self { Self(v128_or(self.0, other.0)) }
        fn and(self, other: Self) -> Self { Self(v128_and(self.0, other.0)) }
        fn xor(self, other: Self) -> Self { Self(v128_xor(self.0, other.0)) }
        fn shl<const BY: i32>(self) -> Self { Self(u32x4_shl(self.0, BY.unsigned_abs())) }
        fn shr<const BY: i32>(self) -> Self { Self(u32x4_shr(self.0, BY.unsigned_abs())) }
        fn is_full(self) -> bool { !v128_any_true(v128_not(self.0)) }
        fn add_ones(self, sums: Self) -> Self {
            let bytes = u8x16_popcnt(self.0);
            let words = u32x4_extadd_pairwise_u16x8(u16x8_extadd_pairwise_u8x16(bytes));
            let pairs = u64x2_add(u64x2_extend_low_u32x4(words), u64x2_extend_high_u32x4(words));
            Self(u64x2_add(sums.0, pairs))
        }
        // A lane that passes the test is -1.
        fn add_disjoint(self, other: Self, counts: Self) -> Self {
            let first = u32x4_eq(v128_and(self.0, other.0), u32x4_splat(0));
            Self(u32x4_sub(counts.0, first))
        }
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller vouches for the 16 bytes.
        Self(unsafe { v128_load(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller vouches for the 16 bytes.
        unsafe { v128_store(to.cast(), self.0) }
    }
}
