//! Sorting a long list into few cells by all threads of a crew: each counts the keys of some groups by
//! cell, and once it is known where those of every cell and member go, makes the same groups again and
//! puts them there.

use super::sort::{Apart, Lists, Places, Scratch, add_up, each};
use crate::{
    frames::hjoin::layout::order::Dissection,
    simd::{Lanes, Rest, Set, SharedWords, Work},
};

/// Going through some keys of a list that several members sort together.
pub(crate) struct EachKey<'a, V> {
    pub(crate) dissection: Dissection<'a>,
    pub(crate) keys: &'a [u64],
    /// The member's own counters, one for each half of its keys and each cell.
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) visit: V,
}

/// What is done with a key.
pub(crate) trait Visit {
    /// Of either half, so many keys are fetched for at a time before they are visited.
    const AT_A_TIME: usize;

    /// Fetches what will be needed for a key whose cell has this counter, or one that is a little further
    /// by then.
    fn fetch<L: Lanes>(&self, counter: u32);

    /// `counter` is that of the key's cell.
    fn key<L: Lanes>(&self, apart: Apart<'_>, key: u64, counter: &mut u32);
}

impl<V: Visit> Work for EachKey<'_, V> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let apart = Apart::new::<S::Bits>(self.dissection);
        let places = Places::cells(apart);
        let counters = &mut self.scratch.counters[..];
        assert!(counters.len() >= places.len());
        let (first, second) = self.keys.split_at(self.keys.len() / 2);
        for (first, second) in blocks((first, second), V::AT_A_TIME) {
            each!(first, second, |half, key| {
                // SAFETY: there are so many places.
                let place = unsafe { counters.get_unchecked(apart.place::<S::Bits>(key, places)) };
                self.visit.fetch::<S::Bits>(place[half]);
            });
            each!(first, second, |half, key| {
                // SAFETY: there are so many places.
                let place =
                    unsafe { counters.get_unchecked_mut(apart.place::<S::Bits>(key, places)) };
                self.visit.key::<S::Bits>(apart, key, &mut place[half]);
            });
        }
    }
}

/// The same two lists, so many keys of each at a time.
#[inline(always)]
fn blocks((first, second): Lists<'_>, keys: usize) -> impl Iterator<Item = Lists<'_>> {
    let longer = first.len().max(second.len());
    (0..longer).step_by(keys).map(move |start| {
        let block = |list: &'_ [u64]| {
            let end = list.len().min(start.saturating_add(keys));
            start.min(end)..end
        };
        (&first[block(first)], &second[block(second)])
    })
}

/// Counting the keys of every cell.
pub(crate) struct CountKeys;

impl Visit for CountKeys {
    const AT_A_TIME: usize = usize::MAX;

    #[inline(always)]
    fn fetch<L: Lanes>(&self, _counter: u32) {}

    #[inline(always)]
    fn key<L: Lanes>(&self, _apart: Apart<'_>, _key: u64, counter: &mut u32) {
        *counter += 1;
    }
}

/// Putting keys that were counted before where they go.
pub(crate) struct PutKeys<'a, W>(pub(crate) SharedWords<'a, W>);

impl<W: Rest> Visit for PutKeys<'_, W> {
    /// As many lines as a CPU fetches side by side; a key's own line is mostly in no cache but the largest.
    const AT_A_TIME: usize = 32;

    #[inline(always)]
    fn fetch<L: Lanes>(&self, counter: u32) {
        L::prefetch(self.0.at(counter as usize));
    }

    #[inline(always)]
    fn key<L: Lanes>(&self, apart: Apart<'_>, key: u64, counter: &mut u32) {
        // Whoever made the keys may not have made the same ones again: places are checked.
        self.0.put(*counter as usize, apart.rest::<L, W>(key));
        *counter += 1;
    }
}

/// Adding up what the members counted.
pub(crate) struct AddUp<'a, 'b> {
    pub(crate) dissection: Dissection<'a>,
    pub(crate) members: &'a mut [&'b mut Scratch],
    pub(crate) offsets: &'a mut [u32],
}

impl Work for AddUp<'_, '_> {
    type Result = u32;

    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> u32 {
        let places = Places::cells(Apart::new::<S::Bits>(self.dissection));
        let members = self.members.iter_mut().map(|own| &mut own.counters[..]);
        add_up(&mut members.collect::<Vec<_>>(), places, self.offsets)
    }
}
