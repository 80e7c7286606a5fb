//! The index of a table's row among the bits of a rest.

use super::{lanes::Lanes, rest::Rest};

/// Which bits of a rest make up an index, and where to.
pub(crate) trait Rotation {
    /// The lowest of them.
    const FROM: usize;
    /// Where it goes.
    const TO: usize;
    /// How many they are.
    const BITS: usize;
    /// How far right the rest is rotated, modulo its length.
    #[expect(clippy::cast_possible_truncation, reason = "numbers of bits")]
    const BY: u32 = (64 + Self::FROM - Self::TO) as u32;
    /// Where the bits are then.
    const MASK: usize = ((1 << Self::BITS) - 1) << Self::TO;
}

/// `word` rotated right.
///
/// On x86-64 by the one instruction that leaves its operand as it is (BMI2), written out since the
/// compiler would make three of it, a copy, a shift and a mask, where only some of the rotated bits
/// are used: a tenth of the time of a large frame.
#[inline(always)]
fn rotate<L: Lanes, R: Rotation>(word: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if L::EXTRACTS {
        let rotated;
        // SAFETY: extraction is one instruction on x86-64 by BMI2 only; nothing but the operands is
        // touched.
        unsafe {
            std::arch::asm!(
                "rorx {rotated:e}, {word:e}, {by}",
                rotated = lateout(reg) rotated,
                word = in(reg) word,
                by = const R::BY % u32::BITS,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        return rotated;
    }
    word.rotate_right(R::BY)
}

/// The bits of a rest rotated right, and some of them.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a few bits are wanted")]
pub(crate) fn rotated<L: Lanes, W: Rest, R: Rotation>(rest: W) -> usize {
    if W::WORDS == 1 {
        rotate::<L, R>(rest.word(0)) as usize & R::MASK
    } else {
        (rest.bits().rotate_right(R::BY) & R::MASK as u64) as usize
    }
}
