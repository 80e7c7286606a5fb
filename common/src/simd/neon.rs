//! Four lanes of 32 bits: NEON on aarch64.
//!
//! SAFETY, for every block below: only work on this set calls it, and its token proves the CPU's
//! features.

use std::arch::aarch64::*;

use super::lanes::{BYTE_ORDER, Lanes, States};

/// Token of 128-bit vectors; exists only on CPUs with NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

/// Flags as values: a lane is flagged if it is not zero.
///
/// The comparison is deferred, so that several flags are combined by minimum and compared once.
#[derive(Clone, Copy)]
pub(crate) struct Flags(uint32x4_t);

impl Neon {
    /// # Safety
    /// The CPU has NEON.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Flags {
    /// Returns one bit per lane.
    ///
    /// # Safety
    /// The CPU has NEON.
    #[inline(always)]
    unsafe fn bits(self) -> usize {
        const LANES: [u32; 4] = [1, 2, 4, 8];
        // SAFETY: the caller vouches for NEON; the array has four elements.
        unsafe {
            vaddvq_u32(vandq_u32(vtstq_u32(self.0, self.0), vld1q_u32(LANES.as_ptr()))) as usize
        }
    }
}

// For every method: the CPU has the instructions, since a `Neon` exists.
impl States for Neon {
    const WIDTH: usize = 4;
    const AHEAD: usize = 2;
    type Vector = uint32x4_t;
    type Mask = Flags;

    instructions! {
        fn splat(self, value: u32) -> uint32x4_t { vdupq_n_u32(value) }
        fn xor(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t { veorq_u32(a, b) }
        fn lowest(self, a: uint32x4_t) -> uint32x4_t {
            vandq_u32(a, vsubq_u32(vdupq_n_u32(0), a))
        }
        fn or_shift_up(self, a: uint32x4_t, b: uint32x4_t, by: u32) -> uint32x4_t {
            vshlq_u32(vorrq_u32(a, b), vdupq_n_s32(by.cast_signed()))
        }
        fn without(self, a: uint32x4_t, b: uint32x4_t, c: uint32x4_t) -> uint32x4_t {
            vbicq_u32(a, vorrq_u32(b, c))
        }
        fn and(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t { vandq_u32(a, b) }
        fn both(self, a: Flags, b: Flags) -> Flags { Flags(vminq_u32(a.0, b.0)) }
        fn count(self, mask: Flags) -> usize { mask.bits().count_ones() as usize }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> uint32x4_t {
        // SAFETY: see the module; the caller vouches for four elements.
        unsafe { vld1q_u32(from) }
    }

    #[inline(always)]
    fn or_shift_down(self, a: uint32x4_t, b: uint32x4_t, by: u32) -> uint32x4_t {
        // A negative count shifts right.
        // SAFETY: see the module.
        unsafe { vshlq_u32(vorrq_u32(a, b), vdupq_n_s32(-by.cast_signed())) }
    }

    #[inline(always)]
    fn nonzero(self, a: uint32x4_t) -> Flags {
        Flags(a)
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: uint32x4_t, mask: Flags) {
        // SAFETY: see the module; the table has a row for every set of lanes; the caller vouches for
        // four elements.
        unsafe {
            let order = vld1q_u8(BYTE_ORDER.as_ptr().add(mask.bits()).cast());
            vst1q_u32(to, vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(a), order)));
        }
    }
}

/// Eight 32-bit lanes in two vectors, for the two load pipes of common cores.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NeonBits(uint32x4_t, uint32x4_t);

impl Lanes for NeonBits {
    const LANES: usize = 8;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0)
    }

    instructions! {
        fn splat(lane: u32) -> Self { Self(vdupq_n_u32(lane), vdupq_n_u32(lane)) }
        fn or(self, other: Self) -> Self {
            Self(vorrq_u32(self.0, other.0), vorrq_u32(self.1, other.1))
        }
        fn and(self, other: Self) -> Self {
            Self(vandq_u32(self.0, other.0), vandq_u32(self.1, other.1))
        }
        fn xor(self, other: Self) -> Self {
            Self(veorq_u32(self.0, other.0), veorq_u32(self.1, other.1))
        }
        fn shl<const BY: i32>(self) -> Self {
            Self(vshlq_n_u32::<BY>(self.0), vshlq_n_u32::<BY>(self.1))
        }
        fn shr<const BY: i32>(self) -> Self {
            Self(vshrq_n_u32::<BY>(self.0), vshrq_n_u32::<BY>(self.1))
        }
        fn is_full(self) -> bool { vminvq_u32(vandq_u32(self.0, self.1)) == u32::MAX }
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see the module; the caller vouches for the 32 bytes.
        unsafe { Self(vld1q_u32(from), vld1q_u32(from.add(4))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see the module; the caller vouches for the 32 bytes.
        unsafe {
            vst1q_u32(to, self.0);
            vst1q_u32(to.add(4), self.1);
        }
    }

    #[inline(always)]
    fn add_ones(self, sums: Self) -> Self {
        // SAFETY: see the module. At most 16 ones per byte after adding both halves.
        unsafe {
            let first = vcntq_u8(vreinterpretq_u8_u32(self.0));
            let bytes = vaddq_u8(first, vcntq_u8(vreinterpretq_u8_u32(self.1)));
            let ones = vpaddlq_u16(vpaddlq_u8(bytes));
            let sum = vpadalq_u32(vreinterpretq_u64_u32(sums.0), ones);
            Self(vreinterpretq_u32_u64(sum), sums.1)
        }
    }

    #[inline(always)]
    fn add_disjoint(self, other: Self, counts: Self) -> Self {
        // SAFETY: see the module. A lane that passes the test is -1.
        unsafe {
            let first = vceqzq_u32(vandq_u32(self.0, other.0));
            let second = vceqzq_u32(vandq_u32(self.1, other.1));
            Self(vsubq_u32(counts.0, first), vsubq_u32(counts.1, second))
        }
    }
}
