//! Counting one frame after the other, each by all threads of a crew.

use std::{ops::Range, sync::Arc};

use super::{
    frame::Frame,
    geometry::Kind,
    halves::HalfBoards,
    hjoin::{DisjointPairs, HJoin, PlainJoin, Side},
    memory::LimitsByClass,
    parts::{Bottoms, Parts, Tops},
    plan::Division,
    progress::Progress,
    qjoin::QJoin,
    shelf::Shelf,
    weight::{Share, Shares},
};
use crate::{
    crew::Crew,
    kernel::Kernel,
    setup::{CountError, Orientation},
};

/// Pairs of half boards that are looked at sooner than the bits of a grid are chosen.
const PLAIN_PAIRS: usize = 1 << 10;

/// Counts frames, one at a time; keeps its buffers.
#[derive(Debug)]
pub(super) struct FrameCounter {
    division: Arc<Division>,
    crew: Arc<Crew>,
    turned: bool,
    limits: Arc<LimitsByClass>,
    parts: Parts,
    shares: Shares,
    top: HalfBoards,
    bottom: HalfBoards,
    join: HJoin,
    /// For the shortest lists.
    plain: PlainJoin,
    /// The most pairs of half boards in a frame that are looked at one by one.
    plain_pairs: usize,
    /// Whether the present frame has no more.
    is_plain: bool,
}

/// What all counters of a crew's frames have in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) division: Arc<Division>,
    pub(super) kernel: Kernel,
    pub(super) orientation: Orientation,
}

impl FrameCounter {
    /// By this crew, in pieces of so many keys at most.
    pub(super) fn new(common: &Common, crew: Arc<Crew>, limits: Arc<LimitsByClass>) -> Self {
        let Common {
            division,
            kernel,
            orientation,
        } = common.clone();
        let turned = orientation == Orientation::Turned;
        let kind = if division.is_odd() {
            Kind::TypeTwo
        } else {
            Kind::Even
        };
        let key_bits = division.geometry(kind, turned).key_bits();
        let mut join = HJoin::by(crew.clone(), kernel, key_bits);
        join.set_row_bytes(limits.row_bytes);
        let parts = Parts::new(QJoin::new(kernel), crew.clone(), limits.noted_boards);
        Self {
            turned,
            limits,
            parts,
            shares: Shares::default(),
            top: HalfBoards::default(),
            bottom: HalfBoards::default(),
            join,
            plain: PlainJoin::default(),
            plain_pairs: PLAIN_PAIRS,
            is_plain: false,
            crew,
            division,
        }
    }

    /// Joins in these pieces, short lists on all threads as well.
    #[cfg(test)]
    pub(super) fn set_limits(&mut self, limits: LimitsByClass) {
        self.limits = Arc::new(limits);
        self.plain_pairs = 0;
        self.join.share_short_joins();
    }

    /// From now on small frames are joined by everything that large ones are: in these pieces, made as
    /// they are sorted, and in leaves with this many bits of X3.
    pub(super) fn lower_limits(&mut self, limits: LimitsByClass, x3_bits: usize) {
        self.limits = Arc::new(limits);
        self.plain_pairs = 0;
        self.join.lower_limits(x3_bits);
    }

    /// The weighted count of one frame.
    ///
    /// # Errors
    /// `Cancelled` if the watch said to stop, `Overflow` if it does not fit 64 bits.
    pub(super) fn count(
        &mut self,
        frame: Frame,
        shelf: &Shelf,
        progress: &mut Progress<'_>,
    ) -> Result<u64, CountError> {
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
        let on_done = &mut |_| progress.advance(0.0);
        self.parts.set(frame, geometry, &division, shelf, on_done)?;
        let (tops, bottoms) = self.shares.whole();
        let most = self.limits.held_keys;
        let limits = self.limits.of((kind, queens));
        let most = most.min(limits.most());
        let (above, below) = (
            Tops::new(&self.parts, &division),
            Bottoms::new(&self.parts, &division),
        );
        self.top.begin(tops, most, &above, &self.crew, on_done)?;
        self.bottom
            .begin(bottoms, most, &below, &self.crew, on_done)?;
        let (rounds, limit) = limits.rounds(self.top.number(), self.bottom.number());
        let pairs = self.top.number().saturating_mul(self.bottom.number());
        self.is_plain = pairs <= self.plain_pairs;
        self.join.set_rounds(rounds);
        self.top.set_limit(limit);
        self.bottom.set_limit(limit);
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
            plain,
            is_plain,
            top,
            bottom,
            turned,
            division,
            ..
        } = self;
        let join: &mut dyn DisjointPairs = if *is_plain { plain } else { join };
        let (above, below) = (Tops::new(parts, division), Bottoms::new(parts, division));
        let told = &mut |done| progress.advance(done);
        // After a half turn the lower half is on top.
        if top.is_unsorted() && bottom.is_unsorted() {
            top.with_keys(tops, &above, |tops| {
                bottom.with_keys(bottoms, &below, |bottoms| {
                    if *turned {
                        join.start(parts.contested(), bottoms, tops);
                    } else {
                        join.start(parts.contested(), tops, bottoms);
                    }
                });
            });
        }
        let (side, other) = if *turned {
            (Side::Bottom, Side::Top)
        } else {
            (Side::Top, Side::Bottom)
        };
        let top = top.sort(tops, &above, |part, keys| join.set(side, part, keys, told))?;
        let bottom = bottom.sort(bottoms, &below, |part, keys| {
            join.set(other, part, keys, told)
        })?;
        if *turned {
            join.join(bottom, top, told)
        } else {
            join.join(top, bottom, told)
        }
    }
}
