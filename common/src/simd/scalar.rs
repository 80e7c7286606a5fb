//! One lane of 32 bits: portable.

use super::states::States;

/// Plain integers. Appending stores always and moves on by 0 or 1, so nothing branches here either.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl States for Scalar {
    const WIDTH: usize = 1;
    const AHEAD: usize = 1;
    type Vector = u32;
    type Mask = bool;

    #[inline(always)]
    unsafe fn splat(self, value: u32) -> u32 {
        value
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> u32 {
        // SAFETY: the caller vouches for one element.
        unsafe { from.read() }
    }

    #[inline(always)]
    unsafe fn xor(self, a: u32, b: u32) -> u32 {
        a ^ b
    }

    #[inline(always)]
    unsafe fn lowest(self, a: u32) -> u32 {
        a & a.wrapping_neg()
    }

    #[inline(always)]
    unsafe fn or_shift_up(self, a: u32, b: u32, by: u32) -> u32 {
        (a | b) << by
    }

    #[inline(always)]
    unsafe fn or_shift_down(self, a: u32, b: u32, by: u32) -> u32 {
        (a | b) >> by
    }

    #[inline(always)]
    unsafe fn without(self, a: u32, b: u32, c: u32) -> u32 {
        a & !(b | c)
    }

    #[inline(always)]
    unsafe fn and(self, a: u32, b: u32) -> u32 {
        a & b
    }

    #[inline(always)]
    unsafe fn nonzero(self, a: u32) -> bool {
        a != 0
    }

    #[inline(always)]
    unsafe fn both(self, a: bool, b: bool) -> bool {
        a & b
    }

    #[inline(always)]
    unsafe fn count(self, mask: bool) -> usize {
        usize::from(mask)
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: u32, _mask: bool) {
        // SAFETY: the caller vouches for one element.
        unsafe { to.write(a) }
    }
}
