//! The quarter lists of a frame, and the half boards made of them.

use std::sync::Arc;

use super::{
    geometry::{Geometry, Kind, Quadrant},
    halves::HalfBoardMaker,
    plan::{Division, Frame},
    qjoin::Keys,
    quarter::Quarter,
    sets::elements,
    shelf::Shelf,
};

/// The quarter lists of a frame, and the middle queens that go with them.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The frame and the orientation that the lists below are of.
    made_for: Option<(Frame, Geometry)>,
    /// Of A.
    p: Arc<Quarter>,
    /// Of ~C.
    q: Arc<Quarter>,
    /// Of C.
    r: Arc<Quarter>,
    /// One place at the left of the lower half, or one for each column x of the middle-row queen.
    s: Vec<Below>,
    /// How many entries of `s` are in use.
    belows: usize,
    /// The middle-column queens by their row y.
    middle_column: Vec<u64>,
}

/// S with columns ~A, and for type II the middle-row queen beside it, whose column is not in S.
#[derive(Debug, Default)]
struct Below {
    queen: u64,
    s: Arc<Quarter>,
}

impl Parts {
    /// Makes the quarter lists of a frame; those of A stay while A does.
    pub(crate) fn set(
        &mut self,
        frame: Frame,
        geometry: Geometry,
        division: &Division,
        shelf: &mut Shelf,
    ) {
        let sets = division.sets();
        let a = sets.of_size(frame.top_queens())[frame.a];
        let c = sets.of_size(frame.queens)[frame.c];
        let (not_a, not_c) = (division.full() & !a, division.full() & !c);
        let same_a = |before: &(Frame, Geometry)| {
            let (before, seen_from) = *before;
            seen_from == geometry
                && Frame {
                    c: frame.c,
                    ..before
                } == frame
        };
        if !self.made_for.as_ref().is_some_and(same_a) {
            shelf.get(sets, geometry, Quadrant::P, a, &mut self.p);
            self.belows = 0;
            self.middle_column.clear();
            match frame.kind {
                Kind::Even | Kind::TypeOne => {
                    shelf.get(sets, geometry, Quadrant::S, not_a, self.below(0));
                }
                Kind::TypeTwo => {
                    let n = geometry.side;
                    self.middle_column
                        .extend((0..n).map(|y| geometry.key(y, n)));
                    for x in elements(not_a) {
                        let below = self.below(geometry.key(n, x));
                        shelf.get(sets, geometry, Quadrant::S, not_a & !(1 << x), below);
                    }
                }
            }
        }
        shelf.get(sets, geometry, Quadrant::Q, not_c, &mut self.q);
        shelf.get(sets, geometry, Quadrant::R, c, &mut self.r);
        self.made_for = Some((frame, geometry));
    }

    fn below(&mut self, queen: u64) -> &mut Arc<Quarter> {
        if self.belows == self.s.len() {
            self.s.push(Below::default());
        }
        let below = &mut self.s[self.belows];
        self.belows += 1;
        below.queen = queen;
        &mut below.s
    }

    fn belows(&self) -> &[Below] {
        &self.s[..self.belows]
    }
}

/// Makes upper half boards, by the rank of B, the rows of P.
pub(crate) struct Tops<'a> {
    parts: &'a Parts,
    division: &'a Division,
    frame: Frame,
    mask: u64,
}

/// Makes lower half boards, by the rank of D, the rows of R.
pub(crate) struct Bottoms<'a> {
    parts: &'a Parts,
    kind: Kind,
    /// The largest rank: that of ~D among the sets of its size is so much less the rank of D.
    last: usize,
    mask: u64,
}

impl<'a> Tops<'a> {
    /// Of the frame that `parts` was set to.
    ///
    /// # Panics
    /// If it was not.
    pub(crate) fn new(parts: &'a Parts, division: &'a Division) -> Self {
        let (frame, geometry) = parts.made_for.expect("the frame was set");
        Self {
            parts,
            division,
            frame,
            mask: geometry.key_mask(),
        }
    }

    fn rows_of_q(&self, rank: usize) -> u32 {
        self.division.full() & !self.division.sets().of_size(self.frame.top_queens())[rank]
    }

    fn q(&self, rows: u32) -> &[u64] {
        self.parts.q.rows(self.division.sets().rank(rows))
    }
}

impl<'a> Bottoms<'a> {
    /// Of the frame that `parts` was set to.
    ///
    /// # Panics
    /// If it was not.
    pub(crate) fn new(parts: &'a Parts, division: &'a Division) -> Self {
        let (frame, geometry) = parts.made_for.expect("the frame was set");
        let last = division.sets().count(frame.queens) - 1;
        Self {
            parts,
            kind: frame.kind,
            last,
            mask: geometry.key_mask(),
        }
    }
}

impl HalfBoardMaker for Tops<'_> {
    fn pairs(&self, rank: usize) -> usize {
        let others = self.rows_of_q(rank);
        let partners = match self.frame.kind {
            Kind::Even | Kind::TypeOne => self.q(others).len(),
            Kind::TypeTwo => elements(others)
                .map(|y| self.q(others & !(1 << y)).len())
                .sum(),
        };
        self.parts.p.rows(rank).len() * partners
    }

    fn join(&self, rank: usize, out: &mut Keys) {
        let p = self.parts.p.rows(rank);
        let others = self.rows_of_q(rank);
        match self.frame.kind {
            Kind::Even | Kind::TypeOne => out.join(p, self.q(others), self.mask),
            Kind::TypeTwo => {
                for y in elements(others) {
                    let queen = self.parts.middle_column[y as usize];
                    out.join_beside(queen, p, self.q(others & !(1 << y)), self.mask);
                }
            }
        }
    }
}

impl HalfBoardMaker for Bottoms<'_> {
    fn pairs(&self, rank: usize) -> usize {
        let lengths = self
            .parts
            .belows()
            .iter()
            .map(|below| below.s.rows(self.last - rank).len());
        self.parts.r.rows(rank).len() * lengths.sum::<usize>()
    }

    fn join(&self, rank: usize, out: &mut Keys) {
        let r = self.parts.r.rows(rank);
        for below in self.parts.belows() {
            let s = below.s.rows(self.last - rank);
            match self.kind {
                Kind::Even | Kind::TypeOne => out.join(r, s, self.mask),
                Kind::TypeTwo => out.join_beside(below.queen, r, s, self.mask),
            }
        }
    }
}
