//! The portable instruction set: plain integers.

use super::lanes::{Lanes, States};

/// Plain integers; appending stores and advances by 0 or 1, without branches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl States for Scalar {
    const WIDTH: usize = 1;
    const AHEAD: usize = 1;
    type Vector = u32;
    type Mask = bool;

    inlined! {
        fn splat(self, value: u32) -> u32 { value }
        fn xor(self, a: u32, b: u32) -> u32 { a ^ b }
        fn lowest(self, a: u32) -> u32 { a & a.wrapping_neg() }
        fn or_shift_up(self, a: u32, b: u32, by: u32) -> u32 { (a | b) << by }
        fn or_shift_down(self, a: u32, b: u32, by: u32) -> u32 { (a | b) >> by }
        fn without(self, a: u32, b: u32, c: u32) -> u32 { a & !(b | c) }
        fn and(self, a: u32, b: u32) -> u32 { a & b }
        fn nonzero(self, a: u32) -> bool { a != 0 }
        fn both(self, a: bool, b: bool) -> bool { a & b }
        fn count(self, mask: bool) -> usize { usize::from(mask) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> u32 {
        // SAFETY: the caller vouches for one element.
        unsafe { from.read() }
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: u32, _mask: bool) {
        // SAFETY: the caller vouches for one element.
        unsafe { to.write(a) }
    }
}

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
    const LANES: usize = 8;

    inlined! {
        fn zero() -> Self { Self([0; 4]) }
        fn splat(lane: u32) -> Self { Self([u64::from(lane) << 32 | u64::from(lane); 4]) }
        fn or(self, other: Self) -> Self { self.zip(other, |a, b| a | b) }
        fn and(self, other: Self) -> Self { self.zip(other, |a, b| a & b) }
        fn xor(self, other: Self) -> Self { self.zip(other, |a, b| a ^ b) }
        fn shl<const BY: i32>(self) -> Self { Self(self.0.map(|word| word << BY)) }
        fn shr<const BY: i32>(self) -> Self { Self(self.0.map(|word| word >> BY)) }
        fn is_full(self) -> bool { self.0 == [u64::MAX; 4] }
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
    fn add_ones(self, sums: Self) -> Self {
        self.zip(sums, |word, sum| sum + u64::from(word.count_ones()))
    }

    #[inline(always)]
    fn add_disjoint(self, other: Self, counts: Self) -> Self {
        let low = 0x7fff_ffff_7fff_ffff;
        // Adding `low` sets the top bit of a lane that has any other bit.
        let meet = self.and(other);
        let none = Self(meet.0.map(|word| !(((word & low) + low) | word) >> 31 & 0x1_0000_0001));
        counts.zip(none, |count, none| count + none)
    }
}
