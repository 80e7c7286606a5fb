//! Sorting a long list into few cells by all threads of a crew: each counts the keys of some groups by
//! cell, and once it is known where those of every cell and member go, makes the same groups again and
//! puts them there.

use std::marker::PhantomData;

use super::sort::{Apart, Places, Scratch, add_up, each};
use crate::{
    frames::hjoin::layout::order::{ByteTables, Order},
    simd::{Rest, Set, Work},
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

/// Rests that several members write, each in places of its own.
#[derive(Clone, Copy)]
pub(crate) struct SharedRests<'a, W> {
    rests: *mut W,
    length: usize,
    lives: PhantomData<&'a mut [W]>,
}

// SAFETY: rests are only written, and only by atomic stores.
unsafe impl<W: Send> Sync for SharedRests<'_, W> {}

impl<'a, W: Rest> SharedRests<'a, W> {
    pub(crate) fn new(rests: &'a mut [W]) -> Self {
        let (length, rests) = (rests.len(), rests.as_mut_ptr());
        let lives = PhantomData;
        Self {
            rests,
            length,
            lives,
        }
    }
}

/// Putting keys that were counted before where they go.
pub(crate) struct PutKeys<'a, W> {
    pub(crate) order: (Order, &'a ByteTables),
    pub(crate) keys: &'a [u64],
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) rests: SharedRests<'a, W>,
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
            // Whoever made the keys may not have made the same ones again.
            assert!(at < self.rests.length);
            // SAFETY: there are so many rests, and nobody reads them.
            unsafe {
                apart
                    .rest::<S::Bits, W>(key)
                    .store_shared(self.rests.rests.add(at));
            }
        });
    }
}
