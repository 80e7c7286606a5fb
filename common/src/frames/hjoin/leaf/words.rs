//! Reading words of rests.

use crate::simd::{Lanes, Rest};

/// Word `word` of the next `LANES` keys.
///
/// # Safety
/// So many keys are readable.
#[inline(always)]
pub(super) unsafe fn load_words<L: Lanes, W: Rest>(keys: *const W, word: usize) -> L {
    if W::WORDS == 1 {
        // SAFETY: the caller vouches for the keys.
        return unsafe { L::load(keys.cast()) };
    }
    let mut lanes = [0; 16];
    for (at, lane) in lanes.iter_mut().enumerate().take(L::LANES) {
        // SAFETY: as above.
        *lane = unsafe { *keys.add(at) }.word(word);
    }
    // SAFETY: 16 lanes are the most there are.
    unsafe { L::load(lanes.as_ptr()) }
}

/// All bits of the first `lanes` lanes.
#[inline(always)]
pub(super) fn lanes_below<L: Lanes>(lanes: usize) -> L {
    const EDGE: [u32; 32] = {
        let mut edge = [0; 32];
        let mut lane = 0;
        while lane < 16 {
            edge[lane] = u32::MAX;
            lane += 1;
        }
        edge
    };
    // SAFETY: 16 lanes are the most there are.
    unsafe { L::load(EDGE.as_ptr().add(16 - lanes.min(16))) }
}
