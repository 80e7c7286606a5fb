//! The search itself: states flow through one stack a row, many at a time, without a branch that
//! depends on them.
//!
//! A backtracking search spends its time on mispredicted branches and half-empty vectors. Here
//! every row has a stack of states, each with the squares it has yet to try. One pass takes a chunk
//! off a stack, places one queen in every state of it, appends the children that live on to the
//! next row's stack, and puts the states with squares left back. The deepest stack that fills a
//! chunk goes first, so stacks stay a few chunks high (depth first) and vectors stay full (breadth
//! first): 99.9 % of all lanes have work at N = 16. Only the number of elements kept steers the next address, so nothing is mispredicted.

use std::ops::ControlFlow;

use super::ground::{Ground, Root};
use crate::{board::Board, simd::States};

/// What [`count`] is told of progress with, and stopped by.
pub(super) type Tick<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// Elements in a chunk. A multiple of every `WIDTH`; large enough that stores have reached the
/// cache before their stack is read again (64 is 15 % slower), small enough that the busy stacks
/// stay in it (256 is 3 % slower).
const CHUNK: usize = 128;

/// Elements a stack has room for: less than a chunk when the row above is worked on, and that adds
/// one chunk; or less than a chunk and a chunk of roots. One vector more, since stores are whole.
const ROOM: usize = 2 * CHUNK + 16;

/// The most roots that one call takes.
pub(super) const MOST_ROOTS: usize = CHUNK;

/// Placements between two looks at the watch: about ten milliseconds.
const SLICE: usize = 1 << 22;

/// States at one row, field by field.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Stack {
    columns: [u32; ROOM],
    left: [u32; ROOM],
    right: [u32; ROOM],
    /// Squares not tried yet; never zero up to `len`.
    free: [u32; ROOM],
    len: usize,
}

/// The stacks of a search, kept from one call to the next.
#[derive(Clone, Debug)]
pub(super) struct Stacks(Box<[Stack]>);

/// What a pass over one stack needs to know of the rows around it.
struct Pass<'a> {
    /// How far the row of the children lies below.
    step: u32,
    /// Squares of that row outside fixed diagonals.
    allowed: u32,
    /// The same of the rows below it, nearest first, with their distance from the one before.
    below: &'a [(u32, u32)],
}

impl Stack {
    /// Makes the lanes beyond the top harmless: no square to try, so nothing stays, and no column
    /// left, so no child lives.
    #[inline(always)]
    fn blank<L: States>(&mut self) {
        let beyond = self.len..self.len + L::WIDTH;
        self.columns[beyond.clone()].fill(0);
        self.free[beyond].fill(0);
    }
}

impl Stacks {
    /// How many there are: enough for the largest board.
    const NUMBER: usize = Board::MAX as usize;

    /// How much memory they take.
    pub(super) const BYTES: u64 = (Self::NUMBER * size_of::<Stack>()) as u64;

    /// Stacks for the largest board.
    pub(super) fn new() -> Self {
        let zero = [0; ROOM];
        let stack = Stack {
            columns: zero,
            left: zero,
            right: zero,
            free: zero,
            len: 0,
        };
        Self(vec![stack; Self::NUMBER].into())
    }
}

/// Counts the ways to fill the rows of `ground` from any of `roots`.
///
/// `tick` is told how many queens were placed since it was called before, and may stop the search.
///
/// # Safety
/// As for [`States`].
#[inline(always)]
pub(super) unsafe fn count<L: States>(
    lanes: L,
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut Tick<'_>,
) -> ControlFlow<(), u64> {
    assert!(roots.len() <= MOST_ROOTS);
    let rows = ground.rows();
    let Some(last) = rows.checked_sub(1) else {
        return ControlFlow::Continue(roots.len() as u64);
    };
    for stack in &mut stacks.0 {
        stack.len = 0;
    }
    push_roots(&mut stacks.0[0], ground, roots);
    if last == 0 {
        return ControlFlow::Continue(stacks.0[0].len as u64);
    }
    let spans: Vec<(u32, u32)> = ground
        .allowed()
        .iter()
        .skip(1)
        .zip(ground.steps())
        .map(|(&allowed, &step)| (allowed, u32::from(step)))
        .collect();
    let mut solutions = 0;
    let mut placed = 0;
    let mut row = 0;
    loop {
        let (above, below) = stacks.0.split_at_mut(row + 1);
        let (stack, next) = (&mut above[row], &mut below[0]);
        let (allowed, step) = spans[row];
        let pass = Pass {
            step,
            allowed,
            below: &spans[row + 1..],
        };
        let taken = stack.len.min(CHUNK);
        placed += taken;
        // SAFETY: passed on from the caller.
        unsafe {
            solutions += match L::AHEAD.min(pass.below.len()) {
                0 => place::<L, 0>(lanes, stack, next, taken, &pass),
                1 => place::<L, 1>(lanes, stack, next, taken, &pass),
                2 => place::<L, 2>(lanes, stack, next, taken, &pass),
                _ => place::<L, 3>(lanes, stack, next, taken, &pass),
            } as u64;
        }
        if placed >= SLICE {
            tick(placed)?;
            placed = 0;
        }
        // The deepest stack that fills a chunk; failing that the highest one with anything in it,
        // so that what is left gathers below and runs in full vectors as long as it can.
        if row + 1 < last && stacks.0[row + 1].len >= CHUNK {
            row += 1;
        } else if stacks.0[row].len < CHUNK {
            let open = &stacks.0[..last];
            let full = open.iter().rposition(|stack| stack.len >= CHUNK);
            match full.or_else(|| open.iter().position(|stack| stack.len > 0)) {
                Some(found) => row = found,
                None => break,
            }
        }
    }
    let _ = tick(placed);
    ControlFlow::Continue(solutions)
}

#[inline(always)]
fn push_roots(stack: &mut Stack, ground: &Ground, roots: &[Root]) {
    for &Root {
        columns,
        left,
        right,
    } in roots
    {
        let free = columns & !(left | right) & ground.allowed()[0];
        stack.columns[stack.len] = columns;
        stack.left[stack.len] = left;
        stack.right[stack.len] = right;
        stack.free[stack.len] = free;
        stack.len += usize::from(free != 0);
    }
}

/// Places one queen in each of the top `taken` states of `stack`, and appends the children that live
/// on to `next`. On the last row but one (`AHEAD` = 0) a child that leaves a square for the last
/// queen is a solution: those are counted instead, and their number is returned.
///
/// # Safety
/// As for [`States`].
#[inline(always)]
unsafe fn place<L: States, const AHEAD: usize>(
    lanes: L,
    stack: &mut Stack,
    next: &mut Stack,
    taken: usize,
    pass: &Pass<'_>,
) -> usize {
    let base = stack.len - taken;
    let mut kept = base;
    let mut end = next.len;
    let mut solutions = 0;
    assert!(taken <= CHUNK && stack.len + L::WIDTH <= ROOM && end + taken + L::WIDTH <= ROOM);
    stack.blank::<L>();
    // SAFETY: all offsets stay below the sums asserted above.
    unsafe {
        let allowed = lanes.splat(pass.allowed);
        let mut below = [allowed; AHEAD];
        for (vector, &(mask, _)) in below.iter_mut().zip(pass.below) {
            *vector = lanes.splat(mask);
        }
        for at in (base..stack.len).step_by(L::WIDTH) {
            let columns = lanes.load(stack.columns.as_ptr().add(at));
            let left = lanes.load(stack.left.as_ptr().add(at));
            let right = lanes.load(stack.right.as_ptr().add(at));
            let free = lanes.load(stack.free.as_ptr().add(at));
            let queen = lanes.lowest(free);
            let rest = lanes.xor(free, queen);
            let stay = lanes.nonzero(rest);
            lanes.append(stack.columns.as_mut_ptr().add(kept), columns, stay);
            lanes.append(stack.left.as_mut_ptr().add(kept), left, stay);
            lanes.append(stack.right.as_mut_ptr().add(kept), right, stay);
            lanes.append(stack.free.as_mut_ptr().add(kept), rest, stay);
            kept += lanes.count(stay);

            let columns = lanes.xor(columns, queen);
            let left = lanes.or_shift_up(left, queen, pass.step);
            let right = lanes.or_shift_down(right, queen, pass.step);
            let free = lanes.and(lanes.without(columns, left, right), allowed);
            let mut live = lanes.nonzero(free);
            let (mut ahead_left, mut ahead_right) = (left, right);
            for (&mask, &(_, step)) in below.iter().zip(pass.below) {
                ahead_left = lanes.or_shift_up(ahead_left, ahead_left, step);
                ahead_right = lanes.or_shift_down(ahead_right, ahead_right, step);
                let open = lanes.and(lanes.without(columns, ahead_left, ahead_right), mask);
                live = lanes.both(live, lanes.nonzero(open));
            }
            if AHEAD == 0 {
                solutions += lanes.count(live);
            } else {
                lanes.append(next.columns.as_mut_ptr().add(end), columns, live);
                lanes.append(next.left.as_mut_ptr().add(end), left, live);
                lanes.append(next.right.as_mut_ptr().add(end), right, live);
                lanes.append(next.free.as_mut_ptr().add(end), free, live);
                end += lanes.count(live);
            }
        }
    }
    stack.len = kept;
    next.len = end;
    solutions
}
