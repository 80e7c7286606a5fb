//! The search: states flow through one stack per row, without branches on a state.
//!
//! A backtracking search spends its time on mispredicted branches and half-empty vectors. Here
//! every row has a stack of states with their untried squares. One pass takes a chunk off a
//! stack, places one queen in every state, appends the surviving children to the next row's stack,
//! and puts back the states with squares left. The deepest stack that fills a chunk goes first, so
//! stacks stay a few chunks high (depth first) and vectors stay full (breadth first): 99.9 % of all
//! lanes have work at N = 16.

use std::ops::ControlFlow;

use crate::{
    board::Board,
    compute::kernel::Kernel,
    simd::{Set, States, Work, dispatch},
};

/// Receives the placements since the previous call; `Break` stops the search.
pub(super) type Tick<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// Elements per chunk, a multiple of every `WIDTH`.
///
/// Large enough that stores have reached the cache before their stack is read again (64 is 15 %
/// slower), small enough that the active stacks stay in it (256 is 3 % slower).
const CHUNK: usize = 128;

/// Capacity of a stack: a partial chunk, one from the row above, and one vector.
const ROOM: usize = 2 * CHUNK + 16;

/// Maximum roots per call.
pub(super) const MAX_ROOTS: usize = CHUNK;

/// Placements between two calls of `tick`: about ten milliseconds.
const SLICE: usize = 1 << 22;

/// States of one row, field by field.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Stack {
    columns: [u32; ROOM],
    left: [u32; ROOM],
    right: [u32; ROOM],
    /// Untried squares; never zero up to `len`.
    free: [u32; ROOM],
    len: usize,
}

/// Stacks of a search, reused by later calls.
#[derive(Clone, Debug)]
pub(super) struct Stacks(Box<[Stack]>);

/// Inputs of a pass, from the rows below its stack.
struct Pass<'a> {
    /// Distance to the row of the children.
    step: u32,
    /// Squares of the row of the children outside fixed diagonals.
    allowed: u32,
    /// Squares of the rows below that row, each with the distance from the row above.
    below: &'a [(u32, u32)],
}

impl Stack {
    /// Makes the lanes beyond the top harmless: no square to try and no column left.
    #[inline(always)]
    fn blank<L: States>(&mut self) {
        let beyond = self.len..self.len + L::WIDTH;
        self.columns[beyond.clone()].fill(0);
        self.free[beyond].fill(0);
    }
}

impl Stacks {
    /// Number of stacks, for the largest board.
    const NUMBER: usize = Board::MAX as usize;

    pub(super) const BYTES: u64 = (Self::NUMBER * size_of::<Stack>()) as u64;

    pub(super) fn new() -> Self {
        let zero = [0; ROOM];
        let stack = Stack { columns: zero, left: zero, right: zero, free: zero, len: 0 };
        Self(vec![stack; Self::NUMBER].into())
    }
}

#[inline(always)]
fn push_roots(stack: &mut Stack, allowed: u32, roots: &[InitialState]) {
    for &InitialState { columns, left, right } in roots {
        let free = columns & !(left | right) & allowed;
        stack.columns[stack.len] = columns;
        stack.left[stack.len] = left;
        stack.right[stack.len] = right;
        stack.free[stack.len] = free;
        stack.len += usize::from(free != 0);
    }
}

/// Places one queen in each of the top `taken` states of `stack`.
///
/// The surviving children are appended to `next`. On the last row but one (`AHEAD` = 0), children
/// that leave a square for the last queen are solutions; their number is returned.
#[inline(always)]
fn place<L: States, const AHEAD: usize>(
    lanes: L,
    stack: &mut Stack,
    next: &mut Stack,
    taken: usize,
    pass: &Pass<'_>,
) -> usize {
    let base = stack.len - taken;
    let mut stack_end = base;
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
            lanes.append(stack.columns.as_mut_ptr().add(stack_end), columns, stay);
            lanes.append(stack.left.as_mut_ptr().add(stack_end), left, stay);
            lanes.append(stack.right.as_mut_ptr().add(stack_end), right, stay);
            lanes.append(stack.free.as_mut_ptr().add(stack_end), rest, stay);
            stack_end += lanes.count(stay);

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
    stack.len = stack_end;
    next.len = end;
    solutions
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Row of the board.
    pub(super) number: u8,
    /// Columns that no queen outside the search attacks diagonally.
    pub(super) allowed: u32,
    /// Distance to the next row; 0 for the last.
    pub(super) step: u8,
}

/// Returns the rows not in `filled`, without the diagonals of `fixed`.
pub(super) fn rows_to_fill(
    board: Board,
    filled: impl Fn(u8) -> bool,
    fixed: &[(u8, u8)],
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::with_capacity(board.n().into());
    for number in (0..board.n()).filter(|&row| !filled(row)) {
        let attacked = fixed.iter().fold(0, |attacked, &(from, column)| {
            let distance = number.abs_diff(from);
            attacked | along_left(column, distance) | along_right(column, distance)
        });
        if let Some(above) = rows.last_mut() {
            above.step = number - above.number;
        }
        rows.push(Row { number, allowed: board.full_row() & !attacked, step: 0 });
    }
    rows
}

/// State of the search in its first row; bit c of a mask is column c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InitialState {
    /// Columns without a queen.
    pub(super) columns: u32,
    /// Squares attacked along diagonals on which the column grows with the row.
    pub(super) left: u32,
    /// Squares attacked along diagonals on which the column falls with the row.
    pub(super) right: u32,
}

impl InitialState {
    /// Returns the state at board row `row` below `queens`.
    pub(super) fn below(board: Board, row: u8, queens: impl Iterator<Item = (u8, u8)>) -> Self {
        let mut root = Self { columns: board.full_row(), left: 0, right: 0 };
        for (from, column) in queens {
            root.columns &= !(1 << column);
            root.left |= along_left(column, row - from);
            root.right |= along_right(column, row - from);
        }
        root
    }

    /// Returns the state with more columns taken.
    pub(super) fn without_columns(self, taken: [u8; 3]) -> Self {
        let taken = taken.into_iter().fold(0, |mask, column| mask | 1 << column);
        Self { columns: self.columns & !taken, ..self }
    }

    /// Returns the state in the row after `row`, with a queen in this column of `row`.
    ///
    /// `None` if that square is attacked or not allowed.
    pub(super) fn place(self, column: u8, row: Row) -> Option<Self> {
        let queen = 1 << column;
        if self.columns & !(self.left | self.right) & row.allowed & queen == 0 {
            return None;
        }
        Some(Self {
            columns: self.columns ^ queen,
            left: (self.left | queen).unbounded_shl(row.step.into()),
            right: (self.right | queen).unbounded_shr(row.step.into()),
        })
    }
}

/// Returns the column bit of the diagonal to higher columns, `distance` rows away.
fn along_left(column: u8, distance: u8) -> u32 {
    1u32.unbounded_shl(u32::from(column) + u32::from(distance))
}

/// Returns the column bit of the diagonal to lower columns, `distance` rows away.
fn along_right(column: u8, distance: u8) -> u32 {
    column.checked_sub(distance).map_or(0, |column| 1 << column)
}

/// Counts the ways to fill these rows from any of `roots`.
///
/// `tick` receives the number of queens placed since its previous call, and may stop the search.
pub(super) fn count(
    kernel: Kernel,
    stacks: &mut Stacks,
    rows: &[Row],
    roots: &[InitialState],
    tick: &mut Tick<'_>,
) -> ControlFlow<(), u64> {
    dispatch(kernel, Search { stacks, rows, roots, tick })
}

struct Search<'a, 'b> {
    stacks: &'a mut Stacks,
    rows: &'a [Row],
    roots: &'a [InitialState],
    tick: &'a mut Tick<'b>,
}

impl Work for Search<'_, '_> {
    type Result = ControlFlow<(), u64>;

    #[inline(always)]
    fn run<S: Set>(self, set: S) -> ControlFlow<(), u64> {
        let Self { stacks, rows, roots, tick } = self;
        assert!(roots.len() <= MAX_ROOTS);
        let Some(last) = rows.len().checked_sub(1) else {
            return ControlFlow::Continue(roots.len() as u64);
        };
        for stack in &mut stacks.0 {
            stack.len = 0;
        }
        push_roots(&mut stacks.0[0], rows[0].allowed, roots);
        if last == 0 {
            return ControlFlow::Continue(stacks.0[0].len as u64);
        }
        let next = rows[1..].iter().zip(rows);
        let spans: Vec<(u32, u32)> =
            next.map(|(row, above)| (row.allowed, above.step.into())).collect();
        let mut solutions = 0;
        let mut placed = 0;
        let mut row = 0;
        loop {
            let (above, below) = stacks.0.split_at_mut(row + 1);
            let (stack, next) = (&mut above[row], &mut below[0]);
            let (allowed, step) = spans[row];
            let pass = Pass { step, allowed, below: &spans[row + 1..] };
            let taken = stack.len.min(CHUNK);
            placed += taken;
            solutions += match S::AHEAD.min(pass.below.len()) {
                0 => place::<S, 0>(set, stack, next, taken, &pass),
                1 => place::<S, 1>(set, stack, next, taken, &pass),
                2 => place::<S, 2>(set, stack, next, taken, &pass),
                _ => place::<S, 3>(set, stack, next, taken, &pass),
            } as u64;
            if placed >= SLICE {
                tick(placed)?;
                placed = 0;
            }
            // Takes the deepest stack that fills a chunk, otherwise the highest that is not empty,
            // so that the remaining states gather below it and fill vectors.
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
}
