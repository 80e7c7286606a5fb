//! Counting frames on one thread.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use super::{
    geometry::Kind,
    halves::{Bottoms, Context, HalfBoards, Parts, Tops, Turn},
    hjoin::HJoin,
    plan::{Division, Frame},
    shelf::Shelf,
    weight::{Share, Shares},
};
use crate::count::{CountError, Orientation, Setup, SetupError, Watch};

/// Counts frames on one thread.
#[derive(Debug)]
pub struct Counter {
    division: Arc<Division>,
    turn: Turn,
    /// The most keys in a list of half boards.
    limit: usize,
    shelf: Shelf,
    parts: Parts,
    shares: Shares,
    top: HalfBoards,
    bottom: HalfBoards,
    join: HJoin,
}

impl Counter {
    pub(crate) fn new(division: Arc<Division>, setup: &Setup) -> Result<Self, SetupError> {
        let middle = if division.is_odd() {
            Kind::TypeTwo
        } else {
            Kind::Even
        };
        let join = HJoin::new(setup.kernel, division.geometry(middle).key_bits());
        Ok(Self {
            turn: Turn {
                turned: setup.orientation == Orientation::Turned,
            },
            limit: usize::MAX,
            shelf: Shelf::new(division.side(), setup.memory_bytes / 4),
            parts: Parts::default(),
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
            let context = Context {
                frame: division.frame(unit),
                division: &division,
                turn: self.turn,
            };
            let mut progress = Progress::new(watch, division.unit_cost(unit));
            let count = self.frame(&context, &mut progress)?;
            sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
            progress.finish()?;
        }
        Ok(sum)
    }

    /// The weighted count of one frame.
    fn frame(
        &mut self,
        context: &Context<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<u64, CountError> {
        let Frame { kind, queens, a, c } = context.frame;
        let (sets, side) = (context.division.sets(), context.division.side());
        let (tops, bottoms) = (sets.count(context.frame.top_queens()), sets.count(queens));
        match kind {
            Kind::Even | Kind::TypeOne => {
                self.shares.of_equal_sizes(a, c, tops, 2 * queens == side);
            }
            Kind::TypeTwo => self.shares.of_type_two(a, tops, bottoms),
        }
        self.parts.set(context, &mut self.shelf);
        self.top.clear();
        self.bottom.clear();
        let all_pairs: f64 = self.shares.iter().map(Share::pairs).sum();
        let mut sum = 0i128;
        for at in 0..self.shares.len() {
            let share = self.shares.get(at).clone();
            progress.begin(share.pairs() / all_pairs);
            let count = self.share(context, &share, progress)?;
            sum += i128::from(share.weight) * i128::from(count);
        }
        u64::try_from(sum).map_err(|_| CountError::Overflow)
    }

    /// The pairs of half boards of `share` that fit, joined in pieces that the memory holds.
    fn share(
        &mut self,
        context: &Context<'_>,
        share: &Share,
        progress: &mut Progress<'_>,
    ) -> Result<u64, CountError> {
        let (all_tops, all_bottoms) = self.shares.whole();
        let mut count = 0u64;
        let mut bottoms = share.bottom.clone();
        while !bottoms.is_empty() {
            let maker = Bottoms(&self.parts, *context);
            let bottom = self.bottom.hold(&bottoms, &all_bottoms, self.limit, &maker);
            bottoms.start = bottom.end;
            let mut tops = share.top.clone();
            while !tops.is_empty() {
                let maker = Tops(&self.parts, *context);
                let top = self.top.hold(&tops, &all_tops, self.limit, &maker);
                tops.start = top.end;
                let of_share = top.len() as f64 * bottom.len() as f64 / share.pairs();
                let upper = self.top.keys(top);
                let lower = self.bottom.keys(bottom.clone());
                let (upper, lower) = if self.turn.turned {
                    (lower, upper)
                } else {
                    (upper, lower)
                };
                let mut told = |part| progress.advance(part * of_share);
                let more = self.join.count(upper, lower, &mut told)?;
                count = count.checked_add(more).ok_or(CountError::Overflow)?;
            }
        }
        Ok(count)
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
    /// How much of the frame the present join is.
    weight: f64,
}

impl<'a> Progress<'a> {
    fn new(watch: &'a dyn Watch, cost: u64) -> Self {
        Self {
            watch,
            cost,
            told: 0,
            done: 0.0,
            weight: 0.0,
        }
    }

    /// A join begins that is this part of the frame.
    fn begin(&mut self, weight: f64) {
        self.weight = weight;
    }

    /// `part` of the present join was done.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    fn advance(&mut self, part: f64) -> ControlFlow<()> {
        self.done += self.weight * part;
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
