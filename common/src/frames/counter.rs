//! Counting frames on one thread.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use super::{
    geometry::Kind,
    halves::HalfBoards,
    hjoin::HJoin,
    memory::Budget,
    parts::{Bottoms, Parts, Tops},
    plan::{Division, Frame},
    qjoin::QJoin,
    shelf::Shelf,
    weight::{Share, Shares},
};
use crate::count::{CountError, Orientation, Setup, SetupError, Watch};

/// Counts frames on one thread.
#[derive(Debug)]
pub struct Counter {
    division: Arc<Division>,
    turned: bool,
    budget: Budget,
    shelf: Shelf,
    parts: Parts,
    shares: Shares,
    top: HalfBoards,
    bottom: HalfBoards,
    join: HJoin,
}

impl Counter {
    pub(crate) fn new(division: Arc<Division>, setup: &Setup) -> Result<Self, SetupError> {
        let turned = setup.orientation == Orientation::Turned;
        let kind = if division.is_odd() {
            Kind::TypeTwo
        } else {
            Kind::Even
        };
        let join = HJoin::new(setup.kernel, division.geometry(kind, turned).key_bits());
        let budget = Budget::new(setup.memory_bytes, &division, &join)?;
        Ok(Self {
            turned,
            shelf: Shelf::new(budget.shelf_bytes),
            budget,
            parts: Parts::new(QJoin::new(setup.kernel)),
            shares: Shares::default(),
            top: HalfBoards::default(),
            bottom: HalfBoards::default(),
            join,
            division,
        })
    }

    pub(crate) fn count(
        &mut self,
        units: Range<u64>,
        watch: &dyn Watch,
    ) -> Result<u64, CountError> {
        let division = self.division.clone();
        let mut sum = 0u64;
        for unit in units {
            let mut progress = Progress::new(watch, division.unit_cost(unit));
            let count = self.frame(division.frame(unit), &mut progress)?;
            sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
            progress.finish()?;
        }
        Ok(sum)
    }

    /// Joins in pieces of about so many keys.
    #[cfg(test)]
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.budget.set_limit(limit);
    }

    /// The weighted count of one frame.
    fn frame(&mut self, frame: Frame, progress: &mut Progress<'_>) -> Result<u64, CountError> {
        let division = self.division.clone();
        let Frame { kind, queens, a, c } = frame;
        let sets = division.sets();
        let (tops, bottoms) = (sets.count(frame.top_queens()), sets.count(queens));
        match kind {
            Kind::Even | Kind::TypeOne => {
                self.shares
                    .of_equal_sizes(a, c, tops, 2 * queens == division.side());
            }
            Kind::TypeTwo => self.shares.of_type_two(c, tops, bottoms),
        }
        let geometry = division.geometry(kind, self.turned);
        self.parts.set(frame, geometry, &division, &mut self.shelf);
        let (tops, bottoms) = self.shares.whole();
        let limit = self.budget.keys((kind, queens));
        self.top.begin(tops, limit);
        self.bottom.begin(bottoms, limit);
        let all_pairs: f64 = self.shares.iter().map(Share::pairs).sum();
        let mut sum = 0i128;
        for at in 0..self.shares.len() {
            let share = self.shares.get(at).clone();
            progress.share = share.pairs() / all_pairs;
            let count = self.share(&share, progress)?;
            sum += i128::from(share.weight) * i128::from(count);
        }
        u64::try_from(sum).map_err(|_| CountError::Overflow)
    }

    /// The pairs of half boards of `share` that fit, joined in pieces that the memory holds.
    fn share(&mut self, share: &Share, progress: &mut Progress<'_>) -> Result<u64, CountError> {
        let mut count = 0u64;
        let mut bottoms = share.bottom.clone();
        while !bottoms.is_empty() {
            let maker = Bottoms::new(&self.parts, &self.division);
            let bottom = self
                .bottom
                .hold(&bottoms, &maker, || progress.advance(0.0))?;
            bottoms.start = bottom.end;
            let mut tops = share.top.clone();
            while !tops.is_empty() {
                let maker = Tops::new(&self.parts, &self.division);
                let top = self.top.hold(&tops, &maker, || progress.advance(0.0))?;
                tops.start = top.end;
                progress.piece = top.len() as f64 * bottom.len() as f64 / share.pairs();
                let more = self.piece(&top, &bottom, progress)?;
                count = count.checked_add(more).ok_or(CountError::Overflow)?;
            }
        }
        Ok(count)
    }

    /// The pairs of half boards with row sets of these ranks that fit.
    fn piece(
        &mut self,
        tops: &Range<usize>,
        bottoms: &Range<usize>,
        progress: &mut Progress<'_>,
    ) -> Result<u64, CountError> {
        let Self {
            parts,
            join,
            top,
            bottom,
            turned,
            ..
        } = self;
        // After a half turn the lower half is on top.
        let (top, tops, bottom, bottoms) = if *turned {
            (bottom, bottoms, top, tops)
        } else {
            (top, tops, bottom, bottoms)
        };
        if top.is_unsorted() && bottom.is_unsorted() {
            join.start(parts.contested(), top.keys(tops), bottom.keys(bottoms));
        }
        let top = top.sort(tops, |part, keys| join.set_top(part, keys));
        let bottom = bottom.sort(bottoms, |part, keys| join.set_bottom(part, keys));
        join.join(top, bottom, &mut |done| progress.advance(done))
    }
}

/// Tells the watch of the work done within a frame.
struct Progress<'a> {
    watch: &'a dyn Watch,
    /// Of the frame.
    cost: u64,
    /// How much of it the watch knows of.
    told: u64,
    /// How much of the frame is done, 0 … 1.
    done: f64,
    /// How much of the frame the present share is.
    share: f64,
    /// How much of the share the present piece is.
    piece: f64,
}

impl<'a> Progress<'a> {
    fn new(watch: &'a dyn Watch, cost: u64) -> Self {
        Self {
            watch,
            cost,
            told: 0,
            done: 0.0,
            share: 0.0,
            piece: 0.0,
        }
    }

    /// `done` of the present piece was done since the call before.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    fn advance(&mut self, done: f64) -> ControlFlow<()> {
        self.done += self.share * self.piece * done;
        let due = ((self.done * self.cost as f64) as u64).clamp(self.told, self.cost);
        let news = due - self.told;
        self.told = due;
        self.watch.advance(news)
    }

    /// The frame is done.
    fn finish(&mut self) -> Result<(), CountError> {
        let rest = self.cost - self.told;
        self.told = self.cost;
        match self.watch.advance(rest) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CountError::Cancelled),
        }
    }
}
