//! Sorting a long list into few cells by all threads of a crew: each counts the keys of some groups by
//! cell, and once it is known where those of every cell and member go, makes the same groups again and
//! puts them there.

use super::sort::{Apart, Places, Scratch, add_up, each};
use crate::{
    frames::hjoin::layout::order::{ByteTables, Order},
    simd::{Rest, Set, SharedWords, Work},
};

/// Counting some keys of a list that several members count together.
pub(crate) struct CountKeys<'a> {
    pub(crate) order: (Order, &'a ByteTables),
    pub(crate) keys: &'a [u64],
    pub(crate) scratch: &'a mut Scratch,
}

impl Work for CountKeys<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let apart = Apart::new::<S::Bits>(self.order);
        let places = Places::cells(apart);
        let counters = &mut self.scratch.counters[..];
        assert!(counters.len() >= places.len());
        let (first, second) = self.keys.split_at(self.keys.len() / 2);
        each!(first, second, |half, key| {
            // SAFETY: there are so many places.
            let place = unsafe { counters.get_unchecked_mut(apart.place::<S::Bits>(key, places)) };
            place[half] += 1;
        });
    }
}

/// Adding up what the members counted.
pub(crate) struct AddUp<'a, 'b> {
    pub(crate) order: (Order, &'a ByteTables),
    pub(crate) members: &'a mut [&'b mut Scratch],
    pub(crate) offsets: &'a mut [u32],
}

impl Work for AddUp<'_, '_> {
    type Result = u32;

    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> u32 {
        let places = Places::cells(Apart::new::<S::Bits>(self.order));
        let members = self.members.iter_mut().map(|own| &mut own.counters[..]);
        add_up(&mut members.collect::<Vec<_>>(), places, self.offsets)
    }
}

/// Putting keys that were counted before where they go.
pub(crate) struct PutKeys<'a, W> {
    pub(crate) order: (Order, &'a ByteTables),
    pub(crate) keys: &'a [u64],
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) rests: SharedWords<'a, W>,
}

impl<W: Rest> Work for PutKeys<'_, W> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let apart = Apart::new::<S::Bits>(self.order);
        let places = Places::cells(apart);
        let counters = &mut self.scratch.counters[..];
        assert!(counters.len() >= places.len());
        let (first, second) = self.keys.split_at(self.keys.len() / 2);
        each!(first, second, |half, key| {
            // SAFETY: there are so many places.
            let place = unsafe { counters.get_unchecked_mut(apart.place::<S::Bits>(key, places)) };
            let at = place[half] as usize;
            place[half] += 1;
            // Whoever made the keys may not have made the same ones again: places are checked.
            self.rests.put(at, apart.rest::<S::Bits, W>(key));
        });
    }
}
