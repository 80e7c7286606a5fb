//! Quarter lists of a frame, and the half boards made from them.
//!
//! The mathematics: `docs/method.md`, “Two joins” and “Odd boards”.

use std::sync::Arc;

use super::{
    geometry::{Frame, Geometry, Kind, Quadrant, elements},
    plan::Division,
    qjoin,
    quarter::{Quarter, QuarterCache, QuarterMaker, QuarterOf, Source, or_all, unshared},
};
use crate::{
    compute::{
        crew::{Crew, OnDone},
        kernel::Kernel,
        setup::CountError,
    },
    join::Side,
};

/// Quarter lists of a frame; middle queens (type II) are part of the lists of A.
#[derive(Debug)]
pub(crate) struct Parts {
    kernel: Kernel,
    maker: QuarterMaker,
    /// Frame and geometry of the lists below.
    made_for: Option<(Frame, Geometry)>,
    /// Lists of A: one, or one per row y of the middle-column queen.
    p: Vec<Arc<Quarter>>,
    /// List of ~C.
    q: Arc<Quarter>,
    /// List of C.
    r: Arc<Quarter>,
    /// Lists of ~A: one, or one per column x of the middle-row queen, without x.
    s: Vec<Arc<Quarter>>,
    /// Number of entries of `s` in use.
    s_used: usize,
    /// Quarter boards without their middle queen.
    bare: Arc<Quarter>,
}

impl Parts {
    /// Creates empty lists, to be filled by `crew`.
    pub(crate) fn new(kernel: Kernel, crew: Arc<Crew>) -> Self {
        Self {
            kernel,
            maker: QuarterMaker::new(crew),
            made_for: None,
            p: Vec::new(),
            q: Arc::default(),
            r: Arc::default(),
            s: Vec::new(),
            s_used: 0,
            bare: Arc::default(),
        }
    }

    /// Makes the quarter lists of a frame; reuses those of A while A stays the same.
    ///
    /// # Errors
    /// `Cancelled` if `on_done`, which is called repeatedly, returns `Break`; no lists are set then.
    pub(crate) fn set(
        &mut self,
        frame: Frame,
        geometry: Geometry,
        division: &Division,
        cache: &QuarterCache,
        on_done: OnDone<'_>,
    ) -> Result<(), CountError> {
        let sets = division.sets();
        let a = sets.of_size(frame.top_queens())[frame.a];
        let c = sets.of_size(frame.queens)[frame.c];
        let (not_a, not_c) = (division.full() & !a, division.full() & !c);
        let same_a = |before: (Frame, Geometry)| {
            let (before, seen_from) = before;
            seen_from == geometry && Frame { c: frame.c, ..before } == frame
        };
        let before = self.made_for.take();
        let source = &mut Source { sets, cache, maker: &mut self.maker, on_done };
        let of = |quadrant, columns| QuarterOf { geometry, quadrant, columns };
        if !before.is_some_and(same_a) {
            match frame.kind {
                Kind::Even | Kind::TypeOne => {
                    self.s_used = 1;
                    source.get(of(Quadrant::P, a), entry(&mut self.p, 0))?;
                    source.get(of(Quadrant::S, not_a), entry(&mut self.s, 0))?;
                }
                Kind::TypeTwo => {
                    source.get(of(Quadrant::P, a), &mut self.bare)?;
                    let n = geometry.side;
                    for y in 0..n {
                        let list = unshared(entry(&mut self.p, y as usize));
                        list.assign_with_queen(geometry.key(y, n), &self.bare, self.kernel);
                    }
                    self.s_used = 0;
                    for x in elements(not_a) {
                        source.get(of(Quadrant::S, not_a & !(1 << x)), &mut self.bare)?;
                        let list = unshared(entry(&mut self.s, self.s_used));
                        list.assign_with_queen(geometry.key(n, x), &self.bare, self.kernel);
                        self.s_used += 1;
                    }
                }
            }
        }
        source.get(of(Quadrant::Q, not_c), &mut self.q)?;
        source.get(of(Quadrant::R, c), &mut self.r)?;
        self.made_for = Some((frame, geometry));
        Ok(())
    }

    /// Returns the diagonals that half boards of both halves can attack.
    ///
    /// Other key bits, up to a quarter of all, cannot conflict.
    pub(crate) fn shared_diagonals(&self) -> u64 {
        let (frame, geometry) = self.made_for.expect("the frame was set");
        let p = match frame.kind {
            Kind::Even | Kind::TypeOne => &self.p[..1],
            Kind::TypeTwo => &self.p,
        };
        let attacked = |lists: &[Arc<Quarter>]| or_all(lists.iter().map(|list| list.attacked()));
        let above = attacked(p) | self.q.attacked();
        let below = attacked(&self.s[..self.s_used]) | self.r.attacked();
        above & below & geometry.key_mask()
    }
}

#[cfg(test)]
impl Parts {
    /// Returns the size of all lists in bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        let alone = [&self.q, &self.r, &self.bare];
        let lists = self.p.iter().chain(&self.s).chain(alone);
        lists.map(|list| list.held_bytes()).sum()
    }
}

/// Returns the entry at index `at`; appends it if it is missing.
fn entry(lists: &mut Vec<Arc<Quarter>>, at: usize) -> &mut Arc<Quarter> {
    if at == lists.len() {
        lists.push(Arc::default());
    }
    &mut lists[at]
}

/// Maker of the half boards of one half, by rank of row set.
///
/// Row sets are B, the rows of P, for the upper half, and D, the rows of R, for the lower.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfMaker<'a> {
    parts: &'a Parts,
    division: &'a Division,
    frame: Frame,
    mask: u64,
    half: Side,
}

impl<'a> HalfMaker<'a> {
    /// Creates a maker for the frame that `parts` was set to.
    ///
    /// # Panics
    /// If no frame was set.
    pub(crate) fn new(parts: &'a Parts, division: &'a Division, half: Side) -> Self {
        let (frame, geometry) = parts.made_for.expect("the frame was set");
        Self { parts, division, frame, mask: geometry.key_mask(), half }
    }

    /// Visits pairs of quarter lists; pairs of their boards that fit are half boards.
    pub(crate) fn quarters(&self, rank: usize, visit: &mut dyn FnMut(&[u64], &[u64])) {
        let Parts { p, q, r, s, s_used, .. } = self.parts;
        let sets = self.division.sets();
        let q = |rows| q.rows(sets.rank(rows));
        match (self.half, self.frame.kind) {
            (Side::Top, kind) => {
                let rows = sets.of_size(self.frame.top_queens())[rank];
                let others = self.division.full() & !rows;
                match kind {
                    Kind::Even | Kind::TypeOne => visit(p[0].rows(rank), q(others)),
                    Kind::TypeTwo => {
                        for y in elements(others) {
                            visit(p[y as usize].rows(rank), q(others & !(1 << y)));
                        }
                    }
                }
            }
            (Side::Bottom, _) => {
                // Taking complements reverses the ranks.
                let others = sets.count(self.frame.queens) - 1 - rank;
                s[..*s_used].iter().for_each(|s| visit(r.rows(rank), s.rows(others)));
            }
        }
    }

    /// Appends the half boards of a row set.
    pub(crate) fn make(&self, rank: usize, keys: &mut Vec<u64>) {
        self.quarters(rank, &mut |left, right| {
            qjoin::join(self.parts.kernel, (left, right), self.mask, keys);
        });
    }

    /// Returns the number of pairs of quarter boards.
    pub(crate) fn pairs(&self, rank: usize) -> usize {
        let mut pairs = 0;
        self.quarters(rank, &mut |left, right| pairs += left.len() * right.len());
        pairs
    }

    pub(crate) fn count(&self, rank: usize) -> usize {
        let mut count = 0;
        self.quarters(rank, &mut |left, right| {
            count += qjoin::count(self.parts.kernel, left, right);
        });
        count
    }

    /// Appends about one in 64 of the half boards, spread evenly over the lists.
    pub(crate) fn make_some(&self, rank: usize, keys: &mut Vec<u64>) {
        let mut skip = rank * 37;
        self.quarters(rank, &mut |left, right| {
            let (short, long) =
                if left.len() < right.len() { (left, right) } else { (right, left) };
            skip %= 64;
            for key in long.iter().skip(skip).step_by(64) {
                let pair = (std::slice::from_ref(key), short);
                qjoin::join(self.parts.kernel, pair, self.mask, keys);
            }
            // Continues the stride in the next list.
            skip += (64 - (long.len() % 64)) % 64;
        });
    }
}
