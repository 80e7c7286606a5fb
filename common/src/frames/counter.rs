//! Counting ranges of frames by a crew: together, or each member another frame.

use std::{
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    memory::Budget,
    one::{Common, FrameCounter},
    plan::Division,
    progress::Progress,
    shelf::Shelf,
    split::{Split, split},
};
use crate::{
    crew::{Crew, OnDone},
    setup::{CountError, Setup, SetupError, Watch},
};

/// Counts frames; keeps its buffers.
#[derive(Debug)]
pub struct Counter {
    common: Common,
    budget: Budget,
    shelf: Shelf,
    crew: Arc<Crew>,
    /// Counts frames by the whole crew, unless `alone` has the memory.
    together: Option<FrameCounter>,
    /// One for each member, or none.
    alone: Vec<FrameCounter>,
}

impl Counter {
    pub(crate) fn new(division: Arc<Division>, setup: &Setup) -> Result<Self, SetupError> {
        let threads = usize::from(setup.threads.get());
        let budget = Budget::new(setup.memory_bytes, &division, threads)?;
        let mut counter = Self {
            common: Common {
                division,
                kernel: setup.kernel,
                orientation: setup.orientation,
            },
            shelf: Shelf::new(budget.shelf_bytes),
            budget,
            crew: Arc::new(Crew::new(threads)),
            together: None,
            alone: Vec::new(),
        };
        counter.together();
        Ok(counter)
    }

    /// What counts frames by the whole crew.
    fn together(&mut self) -> &mut FrameCounter {
        self.alone = Vec::new();
        self.together.get_or_insert_with(|| {
            FrameCounter::new(
                &self.common,
                self.crew.clone(),
                self.budget.together.clone(),
            )
        })
    }

    pub(crate) fn count(
        &mut self,
        units: Range<u64>,
        watch: &dyn Watch,
    ) -> Result<u64, CountError> {
        let Split { together, alone } = split(
            &self.common.division,
            units,
            self.crew.size(),
            self.budget.alone.as_deref(),
        );
        let mut sum = 0_u64;
        for unit in together {
            let on_done = &mut |news| watch.advance(news);
            self.together();
            let Self {
                common,
                shelf,
                together,
                ..
            } = self;
            let together = together.as_mut().expect("made just now");
            let count = count_unit(together, &common.division, shelf, unit, on_done)?;
            sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
        }
        if !alone.is_empty() {
            let count = self.each_alone(&alone, watch)?;
            sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
        }
        Ok(sum)
    }

    /// Counts these units, every member the next one that nobody has taken.
    fn each_alone(&mut self, units: &[u64], watch: &dyn Watch) -> Result<u64, CountError> {
        self.together = None;
        let limits = self.budget.alone.as_ref().expect("some units fit");
        let common = &self.common;
        self.alone.resize_with(self.crew.size(), || {
            FrameCounter::new(common, Arc::new(Crew::new(1)), limits.clone())
        });
        let (next, shelf) = (AtomicUsize::new(0), &self.shelf);
        let on_done = &mut |news| watch.advance(news);
        let counts = self.crew.run(&mut self.alone, on_done, |counter, tell| {
            let mut sum = 0_u64;
            while let Some(&unit) = units.get(next.fetch_add(1, Relaxed)) {
                let on_done = &mut |news| tell.done(news);
                let count = count_unit(counter, &common.division, shelf, unit, on_done)?;
                sum = sum.checked_add(count).ok_or(CountError::Overflow)?;
            }
            Ok(sum)
        });
        let ControlFlow::Continue(counts) = counts else {
            return Err(CountError::Cancelled);
        };
        counts.into_iter().try_fold(0_u64, |sum, count| {
            sum.checked_add(count?).ok_or(CountError::Overflow)
        })
    }

    /// Joins in pieces of about so many keys, short lists on all threads as well.
    #[cfg(test)]
    pub(super) fn set_limit(&mut self, limit: usize) {
        let limits = self.budget.with_limit(limit);
        self.budget.alone = None;
        self.together().set_limits(limits);
    }

    /// From now on small frames are joined by everything that large ones are: by the whole crew, in
    /// pieces of about so many keys, made as they are sorted, and in leaves with this many bits of X3.
    pub(crate) fn lower_limits(&mut self, keys: usize, x3_bits: usize) {
        let limits = self.budget.with_limit(keys);
        self.budget.alone = None;
        self.together().lower_limits(limits, x3_bits);
    }
}

/// The weighted count of one unit.
fn count_unit(
    counter: &mut FrameCounter,
    division: &Division,
    shelf: &Shelf,
    unit: u64,
    on_done: OnDone<'_>,
) -> Result<u64, CountError> {
    let mut progress = Progress::new(on_done, division.unit_cost(unit));
    let count = counter.count(division.frame(unit), shelf, &mut progress)?;
    progress.finish()?;
    Ok(count)
}
