//! Words of 32 or 64 bits.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The rest bits of a key: four bytes where they suffice, eight otherwise.
pub(crate) trait Rest: Copy + Default + Send + Sync {
    /// 32-bit words in a rest.
    const WORDS: usize;

    /// The low bits of `bits`, which has no others.
    fn new(bits: u64) -> Self;

    /// All bits.
    fn bits(self) -> u64;

    /// Word `at` of the rest, the lowest first.
    fn word(self, at: usize) -> u32;

    /// Writes it where other threads may write as well.
    ///
    /// # Safety
    /// `to` is valid and aligned, and read by nobody meanwhile.
    unsafe fn store_shared(self, to: *mut Self);
}

impl Rest for u32 {
    const WORDS: usize = 1;

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the caller's layout leaves 32 bits"
    )]
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

impl Rest for u64 {
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
