//! Quarter lists kept from one frame to the next.

use super::{
    geometry::{Geometry, Kind},
    quarter::{Quarter, QuarterMaker},
    sets::Sets,
};

/// The quarter lists made so far, as many as a budget holds.
#[derive(Debug)]
pub(crate) struct Shelf {
    kinds: Vec<Compartment>,
    side: u32,
    budget_bytes: u64,
    held_bytes: u64,
    /// A list that found no place.
    spare: Quarter,
}

/// The lists of one kind of middle, by column set.
#[derive(Debug)]
struct Compartment {
    kind: Kind,
    maker: QuarterMaker,
    lists: Vec<Option<Box<Quarter>>>,
}

impl Shelf {
    /// An empty shelf for lists of n×n quadrants, n = `side`.
    pub(crate) fn new(side: u32, budget_bytes: u64) -> Self {
        Self {
            kinds: Vec::new(),
            side,
            budget_bytes,
            held_bytes: 0,
            spare: Quarter::default(),
        }
    }

    /// The quarter boards with one queen in each of `columns`, as seen from P.
    pub(crate) fn get(&mut self, sets: &Sets, kind: Kind, columns: u32) -> &Quarter {
        let found = self
            .kinds
            .iter()
            .position(|compartment| compartment.kind == kind);
        let at = found.unwrap_or_else(|| {
            let maker = QuarterMaker::new(Geometry {
                kind,
                side: self.side,
            });
            self.kinds.push(Compartment {
                kind,
                maker,
                lists: vec![None; 1 << self.side],
            });
            self.kinds.len() - 1
        });
        let Compartment { maker, lists, .. } = &mut self.kinds[at];
        let place = &mut lists[columns as usize];
        if place.is_none() {
            maker.make(sets, columns, &mut self.spare);
            let bytes = self.spare.held_bytes();
            if self.held_bytes + bytes > self.budget_bytes {
                return &self.spare;
            }
            self.held_bytes += bytes;
            *place = Some(Box::new(self.spare.clone()));
        }
        place.as_deref().unwrap_or(&self.spare)
    }
}
