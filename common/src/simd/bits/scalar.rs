//! Leaves on plain 64-bit words: compilers turn them into whatever vectors the target has.

use crate::simd::lanes::Lanes;

/// Eight 32-bit lanes in four words.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Words([u64; 4]);

impl Words {
    #[inline(always)]
    fn zip(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|at| op(self.0[at], other.0[at])))
    }
}

impl Lanes for Words {
    type Half = Self;

    const LANES: usize = 8;

    #[inline(always)]
    fn zero() -> Self {
        Self([0; 4])
    }

    #[inline(always)]
    fn splat(lane: u32) -> Self {
        Self([u64::from(lane) << 32 | u64::from(lane); 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller vouches for the 32 bytes.
        Self(unsafe { from.cast::<[u64; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller vouches for the 32 bytes.
        unsafe { to.cast::<[u64; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    #[inline(always)]
    fn shl<const BY: i32>(self) -> Self {
        Self(self.0.map(|word| word << BY))
    }

    #[inline(always)]
    fn shr<const BY: i32>(self) -> Self {
        Self(self.0.map(|word| word >> BY))
    }

    #[inline(always)]
    fn is_full(self) -> bool {
        self.0 == [u64::MAX; 4]
    }

    #[inline(always)]
    fn add_ones(self, sums: Self) -> Self {
        self.zip(sums, |word, sum| sum + u64::from(word.count_ones()))
    }

    #[inline(always)]
    fn add_disjoint(self, other: Self, counts: Self) -> Self {
        let low = 0x7fff_ffff_7fff_ffff;
        // The top bit of a lane of `full` is set where the lane has any other bit.
        let meet = self.and(other);
        let none = Self(
            meet.0
                .map(|word| !(((word & low) + low) | word) >> 31 & 0x1_0000_0001),
        );
        counts.zip(none, |count, none| count + none)
    }
}
