//! Half boards of a frame: what its two joins are made of.

use std::ops::Range;

use super::{
    geometry::{Kind, half_turn, swap_diagonals},
    hjoin::Part,
    plan::{Division, Frame},
    qjoin::Keys,
    quarter::Quarter,
    sets::elements,
    shelf::Shelf,
};

/// The quarter lists of a frame, every key as its quadrant's place on the board says.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Of A.
    p: Quarter,
    /// Of ~C.
    q: Quarter,
    /// Type II: of ~C with the middle bit, which here stands for the main diagonal of the
    /// middle-column queen in row 0: it crosses no other quadrant than Q.
    q_beside_row_0: Quarter,
    /// Of C.
    r: Quarter,
    /// Of ~A; for type II of ~A without x, for each column x of the middle-row queen, with the
    /// middle bit as in Q if x = 0.
    s: Vec<Below>,
    /// How many entries of `s` are in use.
    belows: usize,
    /// The kind, the number of queens and the A that `p` and `s` were made for.
    made_for: Option<(Kind, u32, usize)>,
}

/// S, and the middle-row queen beside it.
#[derive(Debug, Default)]
struct Below {
    queen: u64,
    s: Quarter,
}

/// Where the keys that are joined see the board from: from its top, or after a half turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) turned: bool,
}

impl Turn {
    /// A key of the board.
    fn board(self, key: u64) -> u64 {
        if self.turned { half_turn(key) } else { key }
    }

    /// Upper and lower half, in the order in which the joins see them.
    pub(crate) fn order<T>(self, top: T, bottom: T) -> (T, T) {
        if self.turned {
            (bottom, top)
        } else {
            (top, bottom)
        }
    }

    /// A key of the board after a half turn: R and S are quadrants as P and Q in that one.
    fn turned_board(self, key: u64) -> u64 {
        if self.turned { key } else { half_turn(key) }
    }
}

/// What the half boards of a frame are made by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) frame: Frame,
    pub(crate) division: &'a Division,
    pub(crate) turn: Turn,
}

impl Parts {
    /// Makes the quarter lists of a frame; those of A stay while A does.
    pub(crate) fn set(&mut self, context: &Context<'_>, shelf: &mut Shelf) {
        let Context {
            frame: Frame { kind, queens, a, c },
            division,
            turn,
        } = *context;
        let sets = division.sets();
        let middle = division.geometry(kind).middle_bit();
        let full = division.geometry(kind).full();
        let swapped = |key| apart(middle, key, swap_diagonals);
        let turned = |key| apart(middle, key, |key| turn.turned_board(key));
        let columns = sets.of_size(context.frame.top_queens())[a];
        if self.made_for != Some((kind, queens, a)) {
            self.p
                .assign(shelf.get(sets, kind, columns), |key| context.board(key));
            let others = full & !columns;
            self.belows = 0;
            match kind {
                Kind::Even | Kind::TypeOne => {
                    let s = shelf.get(sets, kind, others);
                    self.below(0).assign(s, |key| turned(swapped(key)));
                }
                Kind::TypeTwo => {
                    for x in elements(others) {
                        let queen = context.board(division.geometry(kind).middle_row_queen(x));
                        let kept = if x == 0 { u64::MAX } else { !middle };
                        let s = shelf.get(sets, kind, others & !(1 << x));
                        self.below(queen)
                            .assign(s, |key| turned(swapped(key)) & kept);
                    }
                }
            }
            self.made_for = Some((kind, queens, a));
        }
        let columns = sets.of_size(queens)[c];
        let q = shelf.get(sets, kind, full & !columns);
        self.q
            .assign(q, |key| context.board(swapped(key)) & !middle);
        match kind {
            Kind::Even | Kind::TypeOne => {}
            Kind::TypeTwo => self
                .q_beside_row_0
                .assign(q, |key| context.board(swapped(key))),
        }
        self.r
            .assign(shelf.get(sets, kind, columns), |key| turned(key) & !middle);
    }

    fn below(&mut self, queen: u64) -> &mut Quarter {
        if self.belows == self.s.len() {
            self.s.push(Below::default());
        }
        let below = &mut self.s[self.belows];
        self.belows += 1;
        below.queen = queen;
        &mut below.s
    }

    /// How many pairs of quarter boards the rows B of rank `b` give: no fewer than half boards.
    pub(crate) fn top_pairs(&self, context: &Context<'_>, b: usize) -> usize {
        let sets = context.division.sets();
        let others = context.division.full() & !sets.of_size(context.frame.top_queens())[b];
        let q = |rows| self.q.rows(sets.rank(rows)).len();
        let partners = match context.frame.kind {
            Kind::Even | Kind::TypeOne => q(others),
            Kind::TypeTwo => elements(others).map(|y| q(others & !(1 << y))).sum(),
        };
        self.p.rows(b).len() * partners
    }

    /// How many pairs of quarter boards the rows D of rank `d` give.
    pub(crate) fn bottom_pairs(&self, context: &Context<'_>, d: usize) -> usize {
        let others = context.division.sets().count(context.frame.queens) - 1 - d;
        let partners = self.s[..self.belows]
            .iter()
            .map(|below| below.s.rows(others).len());
        self.r.rows(d).len() * partners.sum::<usize>()
    }

    /// Adds the upper half boards whose P has the rows B of rank `b`.
    pub(crate) fn join_top(&self, context: &Context<'_>, b: usize, out: &mut Keys) {
        let sets = context.division.sets();
        let others = context.division.full() & !sets.of_size(context.frame.top_queens())[b];
        let p = self.p.rows(b);
        match context.frame.kind {
            Kind::Even | Kind::TypeOne => out.join(p, self.q.rows(sets.rank(others))),
            Kind::TypeTwo => {
                for y in elements(others) {
                    let queen = context
                        .division
                        .geometry(Kind::TypeTwo)
                        .middle_column_queen(y);
                    let q = if y == 0 {
                        &self.q_beside_row_0
                    } else {
                        &self.q
                    };
                    let q = q.rows(sets.rank(others & !(1 << y)));
                    out.join_beside(context.board(queen), p, q);
                }
            }
        }
    }

    /// Adds the lower half boards whose R has the rows D of rank `d`.
    pub(crate) fn join_bottom(&self, context: &Context<'_>, d: usize, out: &mut Keys) {
        let others = context.division.sets().count(context.frame.queens) - 1 - d;
        for below in &self.s[..self.belows] {
            match context.frame.kind {
                Kind::Even | Kind::TypeOne => out.join(self.r.rows(d), below.s.rows(others)),
                Kind::TypeTwo => out.join_beside(below.queen, self.r.rows(d), below.s.rows(others)),
            }
        }
    }
}

impl Context<'_> {
    /// A key of the board as the joins see it. The middle bit stays where it is.
    fn board(&self, key: u64) -> u64 {
        let middle = self.division.geometry(self.frame.kind).middle_bit();
        apart(middle, key, |key| self.turn.board(key))
    }
}

/// `change` done to all bits of `key` but the middle bit, which is no diagonal that has an image.
fn apart(middle: u64, key: u64, change: impl Fn(u64) -> u64) -> u64 {
    change(key & !middle) | key & middle
}

/// The half boards of consecutive row sets of a frame.
#[derive(Debug, Default)]
pub(crate) struct HalfBoards {
    keys: Keys,
    /// Where each row set's boards begin, and the end of the last.
    starts: Vec<usize>,
    /// The ranks of the row sets held.
    ranks: Range<usize>,
    /// All ranks that the frame asks for.
    whole: Range<usize>,
    /// The most boards to hold.
    limit: usize,
    /// The ranks that the join has sorted as its inner part, and as its part on a bound.
    inner: Range<usize>,
    bound: Range<usize>,
}

impl HalfBoards {
    /// Begins a frame that asks for row sets of these ranks. At most `limit` boards are held, or
    /// those of one row set.
    pub(crate) fn begin(&mut self, whole: Range<usize>, limit: usize) {
        (self.whole, self.limit) = (whole, limit);
        (self.ranks, self.inner, self.bound) = (0..0, 0..0, 0..0);
    }

    /// The boards whose row sets have these ranks, all of which must be held.
    pub(crate) fn keys(&self, ranks: &Range<usize>) -> &[u64] {
        let start = |rank: usize| self.starts[rank - self.ranks.start];
        &self.keys.as_slice()[start(ranks.start)..start(ranks.end)]
    }

    /// Makes sure that the boards of the first of `ranks` are held, and says of which ranks among
    /// them they are.
    pub(crate) fn hold(
        &mut self,
        ranks: &Range<usize>,
        maker: &impl HalfBoardMaker,
    ) -> Range<usize> {
        if self.ranks.is_empty() {
            self.fill(self.whole.clone(), maker);
        }
        if !self.ranks.contains(&ranks.start) {
            self.fill(ranks.start..self.whole.end, maker);
        }
        ranks.start..ranks.end.min(self.ranks.end)
    }

    /// Whether no boards of this frame were sorted yet.
    pub(crate) fn is_unsorted(&self) -> bool {
        self.inner.is_empty() && self.bound.is_empty()
    }

    /// Makes sure that `set` sorted the boards of these ranks, and says into which part: a
    /// single row set is one on a bound of A.
    pub(crate) fn sort(&mut self, ranks: &Range<usize>, set: impl FnOnce(Part, &[u64])) -> Part {
        let part = if ranks.len() > 1 {
            Part::Inner
        } else {
            Part::Bound
        };
        let sorted = match part {
            Part::Inner => &self.inner,
            Part::Bound => &self.bound,
        };
        if sorted != ranks {
            set(part, self.keys(ranks));
            match part {
                Part::Inner => self.inner = ranks.clone(),
                Part::Bound => self.bound = ranks.clone(),
            }
        }
        part
    }

    fn fill(&mut self, ranks: Range<usize>, maker: &impl HalfBoardMaker) {
        let pairs = ranks.clone().map(|rank| maker.pairs(rank)).sum::<usize>();
        self.keys
            .clear(pairs.min(self.limit.max(maker.pairs(ranks.start))));
        self.starts.clear();
        self.starts.push(0);
        self.ranks = ranks.start..ranks.start;
        for rank in ranks {
            let held = self.keys.as_slice().len();
            if held > 0 && held + maker.pairs(rank) > self.limit {
                break;
            }
            maker.join(rank, &mut self.keys);
            self.starts.push(self.keys.as_slice().len());
            self.ranks.end = rank + 1;
        }
    }
}

/// Where the half boards of a row set come from.
pub(crate) trait HalfBoardMaker {
    /// A number that the half boards of the row set with this rank cannot pass.
    fn pairs(&self, rank: usize) -> usize;
    /// Adds these half boards.
    fn join(&self, rank: usize, out: &mut Keys);
}

/// Makes upper half boards, by the rank of B.
pub(crate) struct Tops<'a>(pub(crate) &'a Parts, pub(crate) Context<'a>);

/// Makes lower half boards, by the rank of D.
pub(crate) struct Bottoms<'a>(pub(crate) &'a Parts, pub(crate) Context<'a>);

impl HalfBoardMaker for Tops<'_> {
    fn pairs(&self, rank: usize) -> usize {
        self.0.top_pairs(&self.1, rank)
    }

    fn join(&self, rank: usize, out: &mut Keys) {
        self.0.join_top(&self.1, rank, out);
    }
}

impl HalfBoardMaker for Bottoms<'_> {
    fn pairs(&self, rank: usize) -> usize {
        self.0.bottom_pairs(&self.1, rank)
    }

    fn join(&self, rank: usize, out: &mut Keys) {
        self.0.join_bottom(&self.1, rank, out);
    }
}
