//! Residual keys: words of 32 or 64 bits.

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use super::lanes::Lanes;

/// A residual key of four bytes if they suffice, otherwise eight.
pub(crate) trait Residual: Copy + Default + Send + Sync {
    const WORDS: usize;

    /// Creates a residual key from bits that fit in it.
    fn new(bits: u64) -> Self;

    fn bits(self) -> u64;

    /// Returns word `at`, lowest first.
    fn word(self, at: usize) -> u32;

    /// Writes the residual key to memory that other threads write as well.
    ///
    /// # Safety
    /// `to` is valid and aligned, and not read meanwhile.
    unsafe fn store_shared(self, to: *mut Self);
}

impl Residual for u32 {
    const WORDS: usize = 1;

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the caller's layout leaves 32 bits")]
    fn new(bits: u64) -> Self {
        bits as Self
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn word(self, _at: usize) -> u32 {
        self
    }

    #[inline(always)]
    unsafe fn store_shared(self, to: *mut Self) {
        // SAFETY: the caller vouches for the place.
        unsafe { AtomicU32::from_ptr(to) }.store(self, Relaxed);
    }
}

impl Residual for u64 {
    const WORDS: usize = 2;

    #[inline(always)]
    fn new(bits: u64) -> Self {
        bits
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "one word is wanted")]
    fn word(self, at: usize) -> u32 {
        (self >> (32 * at)) as u32
    }

    #[inline(always)]
    unsafe fn store_shared(self, to: *mut Self) {
        // SAFETY: the caller vouches for the place.
        unsafe { AtomicU64::from_ptr(to) }.store(self, Relaxed);
    }
}

/// Words that several threads write, each to different places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedWords<'a, W> {
    words: *mut W,
    length: usize,
    lifetime: PhantomData<&'a mut [W]>,
}

// SAFETY: words are only written, and only by atomic stores.
unsafe impl<W: Send> Sync for SharedWords<'_, W> {}

// SAFETY: as above.
unsafe impl<W: Send> Send for SharedWords<'_, W> {}

impl<'a, W: Residual> SharedWords<'a, W> {
    /// Shares these words; they are not read meanwhile.
    pub(crate) fn new(words: &'a mut [W]) -> Self {
        let (length, words) = (words.len(), words.as_mut_ptr());
        let lifetime = PhantomData;
        Self { words, length, lifetime }
    }

    /// Returns the address of a place.
    #[inline(always)]
    pub(crate) fn at(self, at: usize) -> *const W {
        self.words.wrapping_add(at)
    }

    /// Writes the word at this place.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline(always)]
    pub(crate) fn put(self, at: usize, word: W) {
        assert!(at < self.length);
        // SAFETY: the word is in bounds, and words are not read while shared.
        unsafe { word.store_shared(self.words.add(at)) };
    }
}

/// Selects the bits of a residual key that form a byte offset.
pub(crate) trait Rotation {
    /// Lowest of these bits.
    const FROM: usize;
    /// Position of the lowest bit after the rotation.
    const TO: usize;
    const BITS: usize;
    /// Right rotation, modulo the length of the residual key.
    #[expect(clippy::cast_possible_truncation, reason = "numbers of bits")]
    const BY: u32 = (64 + Self::FROM - Self::TO) as u32;
    /// Mask after the rotation.
    const MASK: usize = ((1 << Self::BITS) - 1) << Self::TO;
}

/// Rotates `word` right.
///
/// With BMI2, inline assembly uses `rorx`, which preserves its operand. The compiler would emit a
/// copy, a shift and a mask, which cost a tenth of the time of a large frame.
#[inline(always)]
fn rotate<L: Lanes, R: Rotation>(word: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if L::EXTRACTS {
        let rotated;
        // SAFETY: on x86-64, extraction is one instruction only with BMI2; the assembly touches
        // nothing but its operands.
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

/// Rotates a residual key right and masks it.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a few bits are wanted")]
pub(crate) fn rotated<L: Lanes, W: Residual, R: Rotation>(residual: W) -> usize {
    if W::WORDS == 1 {
        rotate::<L, R>(residual.word(0)) as usize & R::MASK
    } else {
        (residual.bits().rotate_right(R::BY) & R::MASK as u64) as usize
    }
}
