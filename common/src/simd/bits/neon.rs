//! Leaves on 128-bit vectors of aarch64.
//!
//! SAFETY, for every block below: the methods are reached only by work on the set of this name, whose token
//! proves that the CPU has the features.

use std::arch::aarch64::*;

use crate::simd::lanes::Lanes;

/// Eight 32-bit lanes in two vectors: pairs keep both load pipes of common cores busy.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NeonBits(uint32x4_t, uint32x4_t);

impl Lanes for NeonBits {
    type Half = Self;

    const LANES: usize = 8;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0)
    }

    #[inline(always)]
    fn splat(lane: u32) -> Self {
        // SAFETY: see the module.
        unsafe { Self(vdupq_n_u32(lane), vdupq_n_u32(lane)) }
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
    fn or(self, other: Self) -> Self {
        // SAFETY: see the module.
        unsafe { Self(vorrq_u32(self.0, other.0), vorrq_u32(self.1, other.1)) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: see the module.
        unsafe { Self(vandq_u32(self.0, other.0), vandq_u32(self.1, other.1)) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: see the module.
        unsafe { Self(veorq_u32(self.0, other.0), veorq_u32(self.1, other.1)) }
    }

    #[inline(always)]
    fn shl<const BY: i32>(self) -> Self {
        // SAFETY: see the module.
        unsafe { Self(vshlq_n_u32::<BY>(self.0), vshlq_n_u32::<BY>(self.1)) }
    }

    #[inline(always)]
    fn shr<const BY: i32>(self) -> Self {
        // SAFETY: see the module.
        unsafe { Self(vshrq_n_u32::<BY>(self.0), vshrq_n_u32::<BY>(self.1)) }
    }

    #[inline(always)]
    fn is_full(self) -> bool {
        // SAFETY: see the module.
        unsafe { vminvq_u32(vandq_u32(self.0, self.1)) == u32::MAX }
    }

    #[inline(always)]
    fn add_ones(self, sums: Self) -> Self {
        // SAFETY: see the module. At most 16 ones a byte after adding both halves.
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
