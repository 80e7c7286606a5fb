//! Sets of rows or columns of a quadrant, by size.

/// All subsets of {0 … n−1} as masks, listed by size in increasing order; a set's place in the list
/// of its size is its **rank**. The complement of the set with rank r among K has rank K − 1 − r.
#[derive(Debug)]
pub(crate) struct Sets {
    by_size: Vec<Vec<u32>>,
    rank: Vec<u16>,
}

impl Sets {
    /// The subsets of {0 … side−1}, side ≤ 16.
    pub(crate) fn new(side: u32) -> Self {
        assert!(side <= 16, "sets of {side} columns");
        let mut by_size = vec![Vec::new(); side as usize + 1];
        let ranks = (0..1u32 << side).map(|set| {
            let sets = &mut by_size[set.count_ones() as usize];
            sets.push(set);
            u16::try_from(sets.len() - 1).expect("at most 12870 sets have one size")
        });
        let rank = ranks.collect();
        Self { by_size, rank }
    }

    /// The sets of `size` elements, in increasing order.
    pub(crate) fn of_size(&self, size: u32) -> &[u32] {
        &self.by_size[size as usize]
    }

    /// How many sets have `size` elements.
    pub(crate) fn count(&self, size: u32) -> usize {
        self.of_size(size).len()
    }

    /// The place of `set` among the sets of its size.
    pub(crate) fn rank(&self, set: u32) -> usize {
        usize::from(self.rank[set as usize])
    }
}

/// The elements of `set`, smallest first.
pub(crate) fn elements(set: u32) -> impl Iterator<Item = u32> {
    let mut rest = set;
    std::iter::from_fn(move || {
        let element = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        element
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_each_size_and_complements_mirror_them() {
        let sets = Sets::new(9);
        for size in 0..=9 {
            for (rank, &set) in sets.of_size(size).iter().enumerate() {
                assert_eq!(set.count_ones(), size);
                assert_eq!(elements(set).fold(0, |mask, k| mask | 1 << k), set);
                assert_eq!(sets.rank(set), rank);
                assert_eq!(sets.rank(!set & 0x1ff), sets.count(size) - 1 - rank);
            }
        }
    }
}
