//! Faulty memory, for tests: one bit of the tables of the leaves that this thread counts is flipped.

use std::cell::Cell;

thread_local! {
    /// The 64-bit word and the bit of it that are flipped, if they are.
    static FLIPPED: Cell<Option<(usize, u32)>> = const { Cell::new(None) };
}

/// So many words of the tables may be flipped.
pub(crate) const WORDS: usize = 64;

/// From now on this bit of this word, below [`WORDS`], is flipped whenever tables are made.
pub(crate) fn set(flipped: Option<(usize, u32)>) {
    assert!(flipped.is_none_or(|(word, bit)| word < WORDS && bit < u64::BITS));
    FLIPPED.set(flipped);
}

/// # Safety
/// The tables have [`WORDS`] words.
pub(super) unsafe fn inject(tables: *mut u64) {
    if let Some((word, bit)) = FLIPPED.get() {
        // SAFETY: the caller vouches for so many words.
        unsafe {
            *tables.add(word) ^= 1 << bit;
        }
    }
}
