//! The search on the instructions of a kernel.

use std::ops::ControlFlow;

use super::{
    ground::{Ground, Root},
    stream::{self, Stacks, Tick},
};
use crate::{
    kernel::Kernel,
    simd::{Set, Work, dispatch},
};

/// [`stream::count`] with the instructions of `kernel`.
pub(super) fn count(
    kernel: Kernel,
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut Tick<'_>,
) -> ControlFlow<(), u64> {
    let search = Search {
        stacks,
        ground,
        roots,
        tick,
    };
    dispatch(kernel, search)
}

struct Search<'a, 'b> {
    stacks: &'a mut Stacks,
    ground: &'a Ground,
    roots: &'a [Root],
    tick: &'a mut Tick<'b>,
}

impl Work for Search<'_, '_> {
    type Result = ControlFlow<(), u64>;

    #[inline(always)]
    fn run<S: Set>(self, set: S) -> ControlFlow<(), u64> {
        let Self {
            stacks,
            ground,
            roots,
            tick,
        } = self;
        // SAFETY: the token proves the instruction set.
        unsafe { stream::count(set, stacks, ground, roots, tick) }
    }
}
