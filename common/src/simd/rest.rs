//! Words of 32 or 64 bits.

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

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

/// Words that several threads write, each in places of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedWords<'a, W> {
    words: *mut W,
    length: usize,
    lives: PhantomData<&'a mut [W]>,
}

// SAFETY: words are only written, and only by atomic stores.
unsafe impl<W: Send> Sync for SharedWords<'_, W> {}

// SAFETY: as above.
unsafe impl<W: Send> Send for SharedWords<'_, W> {}

impl<'a, W: Rest> SharedWords<'a, W> {
    /// These words, of which nobody reads any as long as they are shared.
    pub(crate) fn new(words: &'a mut [W]) -> Self {
        let (length, words) = (words.len(), words.as_mut_ptr());
        let lives = PhantomData;
        Self {
            words,
            length,
            lives,
        }
    }

    /// Where this place lies.
    #[inline(always)]
    pub(crate) fn at(self, at: usize) -> *const W {
        self.words.wrapping_add(at)
    }

    /// Replaces the word in this place.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(crate) fn put(self, at: usize, word: W) {
        assert!(at < self.length);
        // SAFETY: there are so many words, and nobody reads them.
        unsafe { word.store_shared(self.words.add(at)) };
    }
}
