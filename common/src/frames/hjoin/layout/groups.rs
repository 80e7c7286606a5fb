//! How the bits of a rest are looked up in tables.

/// How the bits of a rest are looked up in tables, from bit 0 on: `wide` groups of `base` + 1 bits,
/// then groups of `base` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) number: usize,
    base: usize,
    wide: usize,
}

impl Groups {
    /// The most rows that the tables of one block have.
    pub(crate) const MOST_ROWS: usize = Self::of(u32::MAX).rows();

    /// The groups for rests of so many bits: for long ones, which are rare, one of two choices.
    ///
    /// One group fewer is one look fewer a probe, but more rows: tables that crowd each other out of the
    /// first-level cache are slow to write and to look into.
    pub(crate) const fn of(rest_bits: u32) -> Self {
        let (bits, number) = match rest_bits as usize {
            0..=16 => (16, 4),
            bits @ 17..=32 => (bits, bits.div_ceil(5)),
            33..=45 => (45, 9),
            _ => (65, 13),
        };
        let base = bits / number;
        let wide = bits - base * number;
        Self { number, base, wide }
    }

    /// How many of the groups before group `at` are wide.
    const fn wide_before(self, at: usize) -> usize {
        if at < self.wide { at } else { self.wide }
    }

    /// The lowest bit of group `at`.
    pub(crate) const fn first_bit(self, at: usize) -> usize {
        self.base * at + self.wide_before(at)
    }

    /// How many bits group `at` has.
    pub(crate) const fn bits(self, at: usize) -> usize {
        self.first_bit(at + 1) - self.first_bit(at)
    }

    /// The first row of the table of group `at`: a table has one for each value of the bits.
    pub(crate) const fn first_row(self, at: usize) -> usize {
        (at + self.wide_before(at)) << self.base
    }

    /// The rows of all tables.
    pub(crate) const fn rows(self) -> usize {
        self.first_row(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_all_bits_in_tables_side_by_side() {
        for rest_bits in 0..=62 {
            let groups = Groups::of(rest_bits);
            let (mut bit, mut row) = (0, 0);
            for at in 0..groups.number {
                assert_eq!(groups.first_bit(at), bit, "{rest_bits} bits, group {at}");
                assert_eq!(groups.first_row(at), row, "{rest_bits} bits, group {at}");
                assert!(
                    (4..=5).contains(&groups.bits(at)),
                    "{rest_bits} bits, group {at}"
                );
                bit += groups.bits(at);
                row += 1 << groups.bits(at);
            }
            assert!(bit >= rest_bits as usize, "{rest_bits} bits");
            assert_eq!(groups.rows(), row, "{rest_bits} bits");
            assert!(row <= Groups::MOST_ROWS, "{rest_bits} bits");
        }
    }
}
