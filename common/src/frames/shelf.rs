//! Quarter lists kept from one frame to the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    geometry::{Geometry, Quadrant},
    quarter::{Quarter, QuarterMaker, QuarterOf},
    sets::Sets,
};
use crate::{crew::OnDone, setup::CountError};

/// The quarter lists made so far, as many as a budget holds, for all who count.
#[derive(Debug)]
pub(crate) struct Shelf {
    budget_bytes: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    compartments: Vec<Compartment>,
    bytes: u64,
}

/// The lists of one quadrant, by column set.
#[derive(Debug)]
struct Compartment {
    geometry: Geometry,
    quadrant: Quadrant,
    lists: Vec<Option<Arc<Quarter>>>,
}

impl Shelf {
    /// An empty shelf.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Where a list is kept.
    fn place(&mut self, of: QuarterOf) -> &mut Option<Arc<Quarter>> {
        let QuarterOf {
            geometry,
            quadrant,
            columns,
        } = of;
        let is_it = |c: &Compartment| (c.geometry, c.quadrant) == (geometry, quadrant);
        let at = self.compartments.iter().position(is_it);
        let at = at.unwrap_or_else(|| {
            self.compartments.push(Compartment {
                geometry,
                quadrant,
                lists: vec![None; 1 << geometry.side],
            });
            self.compartments.len() - 1
        });
        &mut self.compartments[at].lists[columns as usize]
    }
}

/// Where quarter lists come from: the shelf, or else they are made.
pub(crate) struct Source<'a> {
    pub(crate) sets: &'a Sets,
    pub(crate) shelf: &'a Shelf,
    pub(crate) maker: &'a mut QuarterMaker,
    /// Called now and then as lists are made.
    pub(crate) on_done: OnDone<'a>,
}

impl Source<'_> {
    /// Replaces `list` by the one that is wanted;
    ///
    /// # Errors
    /// `Cancelled` if `on_done` broke.
    pub(crate) fn get(&mut self, of: QuarterOf, list: &mut Arc<Quarter>) -> Result<(), CountError> {
        if let Some(kept) = self.shelf.kept().place(of) {
            list.clone_from(kept);
            return Ok(());
        }
        // A list of its own is made in place, a kept one is left to the shelf.
        if Arc::get_mut(list).is_none() {
            *list = Arc::default();
        }
        let made = Arc::get_mut(list).expect("made just now or owned alone");
        if self
            .maker
            .make(self.sets, of, made, self.on_done)
            .is_break()
        {
            return Err(CountError::Cancelled);
        }
        let bytes = made.held_bytes();
        let mut kept = self.shelf.kept();
        if kept.bytes + bytes <= self.shelf.budget_bytes && kept.place(of).is_none() {
            kept.bytes += bytes;
            made.shrink();
            *kept.place(of) = Some(list.clone());
        }
        Ok(())
    }
}
