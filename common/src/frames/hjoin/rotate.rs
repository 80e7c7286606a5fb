//! Rotation by the one instruction of x86-64 that leaves its operand as it is (BMI2).
//!
//! Written out since the compiler would make three of it, a copy, a shift and a mask, where only some
//! of the rotated bits are used: a tenth of the time of a large frame.
//!
//! SAFETY, for every block below: kernels that call these have BMI2 among their features; nothing but
//! the operands is touched.

use std::arch::asm;

use super::lanes::Rotation;

/// `word` rotated right.
#[inline(always)]
pub(super) fn rotate32<R: Rotation>(word: u32) -> u32 {
    let rotated;
    // SAFETY: see the module.
    unsafe {
        asm!(
            "rorx {rotated:e}, {word:e}, {by}",
            rotated = lateout(reg) rotated,
            word = in(reg) word,
            by = const R::BY % 32,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    rotated
}

/// As [`rotate32`].
#[inline(always)]
pub(super) fn rotate64<R: Rotation>(word: u64) -> u64 {
    let rotated;
    // SAFETY: see the module.
    unsafe {
        asm!(
            "rorx {rotated}, {word}, {by}",
            rotated = lateout(reg) rotated,
            word = in(reg) word,
            by = const R::BY % 64,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    rotated
}
