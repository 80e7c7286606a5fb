//! The quarter lists of a frame, and the half boards made of them.
//!
//! The mathematics: `docs/method.md`, “Two joins” and “Odd boards”.

use std::sync::Arc;

use super::{
    frame::Frame,
    geometry::{Geometry, Kind, Quadrant},
    halves::HalfBoardMaker,
    plan::Division,
    qjoin::QJoin,
    quarter::{Quarter, QuarterMaker, QuarterOf},
    sets::elements,
    shelf::{Shelf, Source},
};
use crate::{
    crew::{Crew, OnDone},
    setup::CountError,
};

/// The quarter lists of a frame. Middle queens (type II) belong to the lists of A.
#[derive(Debug)]
pub(crate) struct Parts {
    qjoin: QJoin,
    maker: QuarterMaker,
    /// The frame and the orientation that the lists below are of.
    made_for: Option<(Frame, Geometry)>,
    /// Of A: one list, or one for each row y of the middle-column queen, with it.
    p: Vec<Arc<Quarter>>,
    /// Of ~C.
    q: Arc<Quarter>,
    /// Of C.
    r: Arc<Quarter>,
    /// Of ~A: one list, or one for each column x of the middle-row queen, of ~A without x, with it.
    s: Vec<Arc<Quarter>>,
    /// How many entries of `s` are in use.
    belows: usize,
    /// Quarter boards whose middle queen is still missing.
    alone: Arc<Quarter>,
}

impl Parts {
    /// No lists yet; they are made by this crew, which notes so many boards of a list as they are found.
    pub(crate) fn new(qjoin: QJoin, crew: Arc<Crew>, noted_boards: usize) -> Self {
        Self {
            qjoin,
            maker: QuarterMaker::new(crew, noted_boards),
            made_for: None,
            p: Vec::new(),
            q: Arc::default(),
            r: Arc::default(),
            s: Vec::new(),
            belows: 0,
            alone: Arc::default(),
        }
    }

    /// Makes the quarter lists of a frame; those of A stay while A does.
    ///
    /// # Errors
    /// `Cancelled` when `on_done`, which is called now and then, breaks: there are no lists then.
    pub(crate) fn set(
        &mut self,
        frame: Frame,
        geometry: Geometry,
        division: &Division,
        shelf: &Shelf,
        on_done: OnDone<'_>,
    ) -> Result<(), CountError> {
        let sets = division.sets();
        let a = sets.of_size(frame.top_queens())[frame.a];
        let c = sets.of_size(frame.queens)[frame.c];
        let (not_a, not_c) = (division.full() & !a, division.full() & !c);
        let same_a = |before: (Frame, Geometry)| {
            let (before, seen_from) = before;
            seen_from == geometry
                && Frame {
                    c: frame.c,
                    ..before
                } == frame
        };
        let before = self.made_for.take();
        let source = &mut Source {
            sets,
            shelf,
            maker: &mut self.maker,
            on_done,
        };
        let of = |quadrant, columns| QuarterOf {
            geometry,
            quadrant,
            columns,
        };
        if !before.is_some_and(same_a) {
            match frame.kind {
                Kind::Even | Kind::TypeOne => {
                    self.belows = 1;
                    source.get(of(Quadrant::P, a), entry(&mut self.p, 0))?;
                    source.get(of(Quadrant::S, not_a), entry(&mut self.s, 0))?;
                }
                Kind::TypeTwo => {
                    source.get(of(Quadrant::P, a), &mut self.alone)?;
                    let n = geometry.side;
                    for y in 0..n {
                        let list = own(entry(&mut self.p, y as usize));
                        list.assign_beside(geometry.key(y, n), &self.alone, self.qjoin);
                    }
                    self.belows = 0;
                    for x in elements(not_a) {
                        source.get(of(Quadrant::S, not_a & !(1 << x)), &mut self.alone)?;
                        let list = own(entry(&mut self.s, self.belows));
                        list.assign_beside(geometry.key(n, x), &self.alone, self.qjoin);
                        self.belows += 1;
                    }
                }
            }
        }
        source.get(of(Quadrant::Q, not_c), &mut self.q)?;
        source.get(of(Quadrant::R, c), &mut self.r)?;
        self.made_for = Some((frame, geometry));
        Ok(())
    }

    /// The bits of a half board's key that half boards of both halves may have: all others decide
    /// nothing. How many others there are depends on the frame: up to a quarter of all.
    pub(crate) fn contested(&self) -> u64 {
        let (frame, geometry) = self.made_for.expect("the frame was set");
        let p = match frame.kind {
            Kind::Even | Kind::TypeOne => &self.p[..1],
            Kind::TypeTwo => &self.p,
        };
        let any = |lists: &[Arc<Quarter>]| lists.iter().fold(0, |any, list| any | list.attacked());
        let above = any(p) | self.q.attacked();
        let below = any(&self.s[..self.belows]) | self.r.attacked();
        above & below & geometry.key_mask()
    }
}

#[cfg(test)]
impl Parts {
    /// What all lists hold, in bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        let alone = [&self.q, &self.r, &self.alone];
        let lists = self.p.iter().chain(&self.s).chain(alone);
        lists.map(|list| list.held_bytes()).sum()
    }

    /// These lists with all middle queens left out but those in column x and row y.
    pub(super) fn with_middle_queens(&self, x: u32, y: u32, a: u32) -> Self {
        let mut only = Self::new(
            self.qjoin,
            Arc::new(Crew::new(1)),
            super::quarter::LEAST_NOTED,
        );
        only.made_for = self.made_for;
        (only.q, only.r) = (self.q.clone(), self.r.clone());
        let odd_one = self
            .made_for
            .is_some_and(|(frame, _)| frame.kind == Kind::TypeTwo);
        if !odd_one {
            (only.p, only.s, only.belows) = (self.p.clone(), self.s.clone(), self.belows);
            return only;
        }
        for (at, list) in self.p.iter().enumerate() {
            let wanted = u32::try_from(at) == Ok(y);
            only.p.push(if wanted {
                list.clone()
            } else {
                Arc::new(list.without_boards())
            });
        }
        let before = elements(!a)
            .position(|column| column == x)
            .expect("x is not in A");
        only.s.push(self.s[before].clone());
        only.belows = 1;
        only
    }
}

/// The entry at this place, or a new one just after the last.
fn entry(lists: &mut Vec<Arc<Quarter>>, at: usize) -> &mut Arc<Quarter> {
    if at == lists.len() {
        lists.push(Arc::default());
    }
    &mut lists[at]
}

/// The list for writing: another one if the shelf keeps it.
fn own(list: &mut Arc<Quarter>) -> &mut Quarter {
    if Arc::get_mut(list).is_none() {
        *list = Arc::default();
    }
    Arc::get_mut(list).expect("made just now or owned alone")
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
            last,
            mask: geometry.key_mask(),
        }
    }
}

impl HalfBoardMaker for Tops<'_> {
    fn qjoin(&self) -> QJoin {
        self.parts.qjoin
    }

    fn mask(&self) -> u64 {
        self.mask
    }

    fn quarters(&self, rank: usize, visit: &mut dyn FnMut(&[u64], &[u64])) {
        let Parts { p, .. } = self.parts;
        let others = self.rows_of_q(rank);
        match self.frame.kind {
            Kind::Even | Kind::TypeOne => visit(p[0].rows(rank), self.q(others)),
            Kind::TypeTwo => {
                for y in elements(others) {
                    visit(p[y as usize].rows(rank), self.q(others & !(1 << y)));
                }
            }
        }
    }
}

impl HalfBoardMaker for Bottoms<'_> {
    fn qjoin(&self) -> QJoin {
        self.parts.qjoin
    }

    fn mask(&self) -> u64 {
        self.mask
    }

    fn quarters(&self, rank: usize, visit: &mut dyn FnMut(&[u64], &[u64])) {
        let Parts { r, s, belows, .. } = self.parts;
        for s in &s[..*belows] {
            visit(r.rows(rank), s.rows(self.last - rank));
        }
    }
}
