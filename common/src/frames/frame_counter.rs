//! Counting frames one at a time, each with all threads of a crew.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use super::{
    geometry::{Frame, Kind},
    halves::HalfBoards,
    memory::LimitsByClass,
    parts::{HalfMaker, Parts},
    plan::Division,
    quarter::QuarterCache,
    weight::{WeightedJoin, WeightedJoins},
};
use crate::{
    compute::{
        crew::{Crew, OnDone},
        kernel::Kernel,
        setup::{CountError, Orientation, go_on},
    },
    join::{Accelerator, DisjointPairs, HJoin, PlainJoin, Side, pairs_of},
};

/// Maximum number of pairs that are tested without choosing grid bits.
const PLAIN_PAIRS: u64 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinedBy {
    Plain,
    HJoin,
    Accelerator,
}

#[derive(Debug)]
pub(super) struct FrameCounter {
    division: Arc<Division>,
    crew: Arc<Crew>,
    rotated: bool,
    limits: Arc<LimitsByClass>,
    parts: Parts,
    top: HalfBoards,
    bottom: HalfBoards,
    join: HJoin,
    /// Join for the shortest lists.
    plain: PlainJoin,
    /// Maximum number of pairs for `plain`.
    plain_pairs: u64,
    accelerator: Option<Accelerator>,
    /// Whether the accelerator joined a frame.
    accelerated: bool,
    /// The join of the current frame.
    joined_by: JoinedBy,
}

/// Settings shared by all counters of a crew.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) division: Arc<Division>,
    pub(super) kernel: Kernel,
    pub(super) orientation: Orientation,
}

impl FrameCounter {
    /// Creates a counter that works with `crew`, in pieces within `limits`.
    pub(super) fn new(settings: &Settings, crew: Arc<Crew>, limits: Arc<LimitsByClass>) -> Self {
        let Settings { division, kernel, orientation } = settings.clone();
        let rotated = orientation == Orientation::Rotated;
        let kind = if division.is_odd() { Kind::TypeTwo } else { Kind::Even };
        let key_bits = division.geometry(kind, rotated).key_bits();
        let mut join = HJoin::with_crew(crew.clone(), kernel, key_bits);
        join.set_row_bytes(limits.row_bytes);
        let parts = Parts::new(kernel, crew.clone());
        Self {
            rotated,
            limits,
            parts,
            top: HalfBoards::default(),
            bottom: HalfBoards::default(),
            join,
            plain: PlainJoin::default(),
            plain_pairs: PLAIN_PAIRS,
            accelerator: None,
            accelerated: false,
            joined_by: JoinedBy::Plain,
            crew,
            division,
        }
    }

    pub(super) fn set_accelerator(&mut self, accelerator: Accelerator) {
        self.accelerator = Some(accelerator);
    }

    pub(super) fn take_accelerated(&mut self) -> bool {
        std::mem::take(&mut self.accelerated)
    }

    /// Makes small frames use every optimization; see `Counter::lower_limits`.
    pub(super) fn lower_limits(&mut self, limits: LimitsByClass, x3_bits: usize) {
        self.limits = Arc::new(limits);
        self.plain_pairs = 0;
        self.join.lower_limits(x3_bits);
    }

    pub(super) fn count(
        &mut self,
        frame: Frame,
        cache: &QuarterCache,
        progress: &mut Progress<'_>,
    ) -> Result<u64, CountError> {
        let division = self.division.clone();
        let Frame { kind, queens, a, c } = frame;
        let sets = division.sets();
        let (tops, bottoms) = (sets.count(frame.top_queens()), sets.count(queens));
        let shares = match kind {
            Kind::Even | Kind::TypeOne => {
                WeightedJoins::of_equal_sizes(a, c, tops, 2 * queens == division.side())
            }
            Kind::TypeTwo => WeightedJoins::of_type_two(c, tops, bottoms),
        };
        let geometry = division.geometry(kind, self.rotated);
        let on_done = &mut |_| progress.advance(0.0);
        self.parts.set(frame, geometry, &division, cache, on_done)?;
        let (tops, bottoms) = shares.whole();
        let limits = self.limits.of((kind, queens));
        let most = self.limits.held_keys.min(limits.most());
        let [above, below] =
            [Side::Top, Side::Bottom].map(|half| HalfMaker::new(&self.parts, &division, half));
        if let Some(accelerator) = &self.accelerator {
            let most = most.min(accelerator.held_keys);
            self.top.begin_estimated(tops, most, &above);
            self.bottom.begin_estimated(bottoms, most, &below);
        } else {
            self.top.begin(tops, most, &above, &self.crew, on_done)?;
            self.bottom.begin(bottoms, most, &below, &self.crew, on_done)?;
        }
        let (mut rounds, mut limit) = limits.rounds(self.top.number(), self.bottom.number());
        let pairs = pairs_of(self.top.number(), self.bottom.number());
        let is_held = self.top.is_held() && self.bottom.is_held();
        self.joined_by = match &self.accelerator {
            Some(accelerator) if !is_held || pairs >= accelerator.min_pairs => {
                (rounds, limit) = (1, accelerator.most_keys / 2);
                self.accelerated = true;
                JoinedBy::Accelerator
            }
            _ if pairs <= self.plain_pairs => JoinedBy::Plain,
            _ => JoinedBy::HJoin,
        };
        self.join.set_rounds(rounds);
        self.top.set_limit(limit);
        self.bottom.set_limit(limit);
        let all_pairs: f64 = shares.iter().map(WeightedJoin::pairs).sum();
        let mut sum = 0i128;
        for share in shares.iter() {
            progress.share = share.pairs() / all_pairs;
            let count = self.share(share, progress)?;
            sum += i128::from(share.weight) * i128::from(count);
        }
        u64::try_from(sum).map_err(|_| CountError::Overflow)
    }

    /// Joins `share` in pieces that fit in memory, and returns the number of solutions.
    fn share(
        &mut self,
        share: &WeightedJoin,
        progress: &mut Progress<'_>,
    ) -> Result<u64, CountError> {
        let mut count = 0u64;
        let mut bottoms = share.bottom.clone();
        while !bottoms.is_empty() {
            let bottom = self.bottom.piece(&bottoms);
            bottoms.start = bottom.end;
            let mut tops = share.top.clone();
            while !tops.is_empty() {
                let top = self.top.piece(&tops);
                tops.start = top.end;
                progress.piece = top.len() as f64 * bottom.len() as f64 / share.pairs();
                let more = self.piece(&top, &bottom, progress)?;
                count = count.checked_add(more).ok_or(CountError::Overflow)?;
            }
        }
        Ok(count)
    }

    /// Joins one piece: the row sets with these ranks.
    fn piece(
        &mut self,
        tops: &Range<usize>,
        bottoms: &Range<usize>,
        progress: &mut Progress<'_>,
    ) -> Result<u64, CountError> {
        let Self { parts, join, plain, accelerator, top, bottom, rotated, division, .. } = self;
        let join: &mut dyn DisjointPairs = match (self.joined_by, accelerator) {
            (JoinedBy::Accelerator, Some(accelerator)) => &mut *accelerator.join,
            (JoinedBy::Plain, _) => plain,
            (JoinedBy::HJoin | JoinedBy::Accelerator, _) => join,
        };
        let [above, below] =
            [Side::Top, Side::Bottom].map(|half| HalfMaker::new(parts, division, half));
        let report = &mut |done| progress.advance(done);
        // If rotated, the lower half is on top.
        if top.is_unsorted() && bottom.is_unsorted() {
            top.with_keys(tops, &above, |tops| {
                bottom.with_keys(bottoms, &below, |bottoms| {
                    if *rotated {
                        join.start(parts.shared_diagonals(), bottoms, tops);
                    } else {
                        join.start(parts.shared_diagonals(), tops, bottoms);
                    }
                });
            });
        }
        let (side, other) =
            if *rotated { (Side::Bottom, Side::Top) } else { (Side::Top, Side::Bottom) };
        let top = top.sort(tops, &above, |part, keys| join.set(side, part, keys, report))?;
        let bottom =
            bottom.sort(bottoms, &below, |part, keys| join.set(other, part, keys, report))?;
        if *rotated { join.join(bottom, top, report) } else { join.join(top, bottom, report) }
    }
}

/// Progress within a frame.
pub(super) struct Progress<'a> {
    on_done: OnDone<'a>,
    cost: u64,
    /// Part of `cost` that was reported.
    reported: u64,
    /// Fraction of the frame that is done, 0 … 1.
    done: f64,
    /// Current share, as a fraction of the frame.
    pub(super) share: f64,
    /// Current piece, as a fraction of the share.
    pub(super) piece: f64,
}

impl<'a> Progress<'a> {
    /// Starts a frame of this cost.
    pub(super) fn new(on_done: OnDone<'a>, cost: u64) -> Self {
        Self { on_done, cost, reported: 0, done: 0.0, share: 0.0, piece: 0.0 }
    }

    /// Reports the fraction of the current piece that was done since the previous call.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn advance(&mut self, done: f64) -> ControlFlow<()> {
        self.done += self.share * self.piece * done;
        let due = ((self.done * self.cost as f64) as u64).clamp(self.reported, self.cost);
        let more = due - self.reported;
        self.reported = due;
        (self.on_done)(more)
    }

    /// Reports the rest of the frame.
    ///
    /// # Errors
    /// `Cancelled` if `on_done` returns `Break`.
    pub(super) fn finish(&mut self) -> Result<(), CountError> {
        let rest = self.cost - self.reported;
        self.reported = self.cost;
        go_on((self.on_done)(rest))
    }
}
