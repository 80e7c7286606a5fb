//! Quarter lists kept from one frame to the next.

use std::sync::Arc;

use super::{
    geometry::{Geometry, Quadrant},
    quarter::{Quarter, QuarterMaker},
    sets::Sets,
};

/// The quarter lists made so far, as many as a budget holds.
#[derive(Debug)]
pub(crate) struct Shelf {
    compartments: Vec<Compartment>,
    budget_bytes: u64,
    held_bytes: u64,
}

/// The lists of one quadrant, by column set.
#[derive(Debug)]
struct Compartment {
    geometry: Geometry,
    quadrant: Quadrant,
    maker: QuarterMaker,
    lists: Vec<Option<Arc<Quarter>>>,
}

impl Shelf {
    /// An empty shelf.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self {
            compartments: Vec::new(),
            budget_bytes,
            held_bytes: 0,
        }
    }

    /// Replaces `list` by the boards of `quadrant` with one queen in each of `columns`.
    pub(crate) fn get(
        &mut self,
        sets: &Sets,
        geometry: Geometry,
        quadrant: Quadrant,
        columns: u32,
        list: &mut Arc<Quarter>,
    ) {
        let known = (geometry, quadrant);
        let found = self
            .compartments
            .iter()
            .position(|c| (c.geometry, c.quadrant) == known);
        let at = found.unwrap_or_else(|| {
            let maker = QuarterMaker::new(geometry, quadrant);
            let lists = vec![None; 1 << geometry.side];
            self.compartments.push(Compartment {
                geometry,
                quadrant,
                maker,
                lists,
            });
            self.compartments.len() - 1
        });
        let Compartment { maker, lists, .. } = &mut self.compartments[at];
        let place = &mut lists[columns as usize];
        if let Some(kept) = place {
            list.clone_from(kept);
            return;
        }
        // A list of its own is made in place, a kept one is left to the shelf.
        if Arc::get_mut(list).is_none() {
            *list = Arc::default();
        }
        let made = Arc::get_mut(list).expect("made just now or owned alone");
        maker.make(sets, columns, made);
        let bytes = made.held_bytes();
        if self.held_bytes + bytes <= self.budget_bytes {
            self.held_bytes += bytes;
            made.shrink();
            *place = Some(list.clone());
        }
    }
}
