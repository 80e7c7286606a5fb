//! HJoin: counting the disjoint pairs of two lists of keys.
//!
//! Keys are half boards; a pair without a common bit is a whole solution. Both lists are sorted into
//! a grid by their most contested bits, X1 and X2. For every pair of patterns (g1, g2) the
//! candidates are the top keys with X1 = g1 and X2 disjoint from g2, and the bottom keys with
//! X2 = g2 and X1 disjoint from g1: every pair that is disjoint in those bits meets in exactly one
//! leaf, where only the other bits are left to test.

mod grid;
mod lanes;
mod leaf;
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use self::{
    grid::{Gathered, Grid, Layout, Rest, SLACK, Side},
    lanes::Lanes,
    leaf::Tables,
};
use crate::{
    count::CountError,
    kernel::{Kernel, KernelName},
};

/// Told the fraction of a join done since the call before (they add up to one); `Break` stops it.
pub type OnProgress<'a> = &'a mut dyn FnMut(f64) -> ControlFlow<()>;

/// Joins lists of keys on one thread; keeps its buffers from one join to the next.
#[derive(Debug)]
pub struct HJoin {
    kernel: Kernel,
    key_bits: u32,
    /// For rests of up to 32 bits.
    short: Buffers<u32>,
    /// For longer rests: keys of many bits in short lists.
    long: Buffers<u64>,
    tables: Tables,
}

#[derive(Debug, Default)]
struct Buffers<W> {
    top: Grid<W>,
    bottom: Grid<W>,
    from_top: Gathered<W>,
    from_bottom: Gathered<W>,
}

/// One join under way.
struct Join<'a, W> {
    layout: Layout,
    buffers: &'a mut Buffers<W>,
    tables: &'a mut Tables,
    lists: (&'a [u64], &'a [u64]),
    progress: OnProgress<'a>,
}

/// Pairs between two calls of [`OnProgress`]: a few milliseconds.
const PAIRS_A_CALL: usize = 1 << 30;

/// The most keys of a list that are joined at a time: offsets are 32 bits.
const MOST_KEYS: usize = 1 << 31;

impl HJoin {
    /// The most bits of a key.
    pub const MOST_BITS: u32 = 62;

    /// A join of keys with `key_bits` bits, at most [`Self::MOST_BITS`]; bit 0 is the one that is
    /// set in both lists most often, and so on downwards.
    pub fn new(kernel: Kernel, key_bits: u32) -> Self {
        assert!(key_bits <= Self::MOST_BITS, "keys of {key_bits} bits");
        let (short, long, tables) = (Buffers::default(), Buffers::default(), Tables::new());
        Self {
            kernel,
            key_bits,
            short,
            long,
            tables,
        }
    }

    /// The number of pairs (u in `top`, v in `bottom`) with `u & v == 0`.
    ///
    /// # Errors
    /// `Cancelled` when `progress` breaks, `Overflow` when the number passes 64 bits.
    pub fn count(
        &mut self,
        top: &[u64],
        bottom: &[u64],
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let mut total = 0_u64;
        for top in top.chunks(MOST_KEYS) {
            for bottom in bottom.chunks(MOST_KEYS) {
                let count = self.count_chunk((top, bottom), progress)?;
                total = total.checked_add(count).ok_or(CountError::Overflow)?;
            }
        }
        Ok(total)
    }

    /// The memory, in bytes, that joining lists of these lengths takes beside the lists.
    pub fn memory_bytes(&self, top: usize, bottom: usize) -> u64 {
        let layout = Layout::new(self.key_bits, top.min(MOST_KEYS), bottom.min(MOST_KEYS));
        let rest = if layout.rest_bits() <= 32 { 4 } else { 8 };
        // A gathered buffer holds one row of a grid: with one pattern alone, all of it.
        let rests = |keys: usize, row_bits: u32| {
            let keys = keys.min(MOST_KEYS) as u64;
            rest * (keys + (keys >> row_bits.saturating_sub(3)) + 2 * SLACK as u64)
        };
        let offsets = 4 * (layout.cells() as u64 + 2);
        2 * offsets + rests(top, layout.x1_bits()) + rests(bottom, layout.x2_bits())
    }

    fn count_chunk(
        &mut self,
        lists: (&[u64], &[u64]),
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let layout = Layout::new(self.key_bits, lists.0.len(), lists.1.len());
        let tables = &mut self.tables;
        if layout.rest_bits() <= 32 {
            let buffers = &mut self.short;
            dispatch(
                self.kernel,
                Join {
                    layout,
                    buffers,
                    tables,
                    lists,
                    progress,
                },
            )
        } else {
            let buffers = &mut self.long;
            dispatch(
                self.kernel,
                Join {
                    layout,
                    buffers,
                    tables,
                    lists,
                    progress,
                },
            )
        }
    }
}

fn dispatch<W: Rest>(kernel: Kernel, join: Join<'_, W>) -> Result<u64, CountError> {
    match kernel.name() {
        KernelName::Scalar => scalar_join(join),
        // SAFETY: a `Kernel` exists only after its features were seen on this CPU.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx2 => unsafe { avx2_join(join) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx512 => unsafe { avx512_join(join) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        KernelName::Neon => unsafe { neon_join(join) },
        #[cfg(target_arch = "x86_64")]
        KernelName::Neon => unreachable!("no kernel of another architecture exists"),
        #[cfg(target_arch = "aarch64")]
        KernelName::Avx2 | KernelName::Avx512 => {
            unreachable!("no kernel of another architecture exists")
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        KernelName::Avx2 | KernelName::Avx512 | KernelName::Neon => {
            unreachable!("no kernel of another architecture exists")
        }
    }
}

fn scalar_join<W: Rest>(join: Join<'_, W>) -> Result<u64, CountError> {
    join.run::<scalar::Words>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn avx2_join<W: Rest>(join: Join<'_, W>) -> Result<u64, CountError> {
    join.run::<avx2::Avx2>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn avx512_join<W: Rest>(join: Join<'_, W>) -> Result<u64, CountError> {
    join.run::<avx512::Avx512>()
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn neon_join<W: Rest>(join: Join<'_, W>) -> Result<u64, CountError> {
    join.run::<neon::Neon>()
}

impl<W: Rest> Join<'_, W> {
    #[inline(always)]
    fn run<L: Lanes>(mut self) -> Result<u64, CountError> {
        self.buffers.top.fill(self.layout, Side::Top, self.lists.0);
        self.buffers
            .bottom
            .fill(self.layout, Side::Bottom, self.lists.1);
        self.buffers.top.reserve(&mut self.buffers.from_top);
        self.buffers.bottom.reserve(&mut self.buffers.from_bottom);
        match (W::WORDS, self.layout.rest_bits()) {
            (1, 0..=24) => self.walk::<L, 4>(),
            (1, 25..=30) => self.walk::<L, 5>(),
            (1, _) => self.walk::<L, 6>(),
            (_, 0..=48) => self.walk::<L, 8>(),
            (_, _) => self.walk::<L, 11>(),
        }
    }

    /// Visits every pair of patterns; near pairs follow each other, so that the rows of both grids
    /// stay in the caches.
    #[inline(always)]
    fn walk<L: Lanes, const GROUPS: usize>(&mut self) -> Result<u64, CountError> {
        let Buffers {
            top,
            bottom,
            from_top,
            from_bottom,
        } = &mut *self.buffers;
        let (x1_bits, x2_bits) = (self.layout.x1_bits(), self.layout.x2_bits());
        let cells = self.layout.cells();
        let (mut total, mut pairs, mut told) = (0_u64, 0_usize, 0);
        for code in 0..cells {
            let (g1, g2) = self.layout.patterns(code as u64);
            // SAFETY: both grids were filled with this layout and both buffers given room by them;
            // leaves read no further than the slack; `dispatch` proved the instruction set.
            let count = unsafe {
                let above = top.gather((g1, x2_bits), g2, from_top);
                let below = bottom.gather((g2, x1_bits), g1, from_bottom);
                pairs += above.1 * below.1;
                self.tables.count::<L, W, GROUPS>(above, below)
            };
            total = total.checked_add(count).ok_or(CountError::Overflow)?;
            if pairs >= PAIRS_A_CALL || code + 1 == cells {
                let done = (code + 1 - told) as f64 / cells as f64;
                if (self.progress)(done).is_break() {
                    return Err(CountError::Cancelled);
                }
                (pairs, told) = (0, code + 1);
            }
        }
        Ok(total)
    }
}
