//! How a key is taken apart.

/// How a key is taken apart: its rest, and the major and the minor pattern of its cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) rest: u64,
    pub(crate) minor: u64,
    pub(crate) major: u64,
    pub(crate) rest_bits: u32,
    pub(crate) minor_bits: u32,
    pub(crate) major_bits: u32,
}

impl Order {
    /// Of keys whose `contested` bits matter, where these choose the major and the minor pattern.
    pub(crate) fn of_masks(contested: u64, major: u64, minor: u64) -> Self {
        let rest = contested & !(major | minor);
        Self {
            rest,
            minor,
            major,
            rest_bits: rest.count_ones(),
            minor_bits: minor.count_ones(),
            major_bits: major.count_ones(),
        }
    }

    /// How many cells there are.
    pub(crate) fn cells(self) -> usize {
        1 << (self.major_bits + self.minor_bits)
    }

    /// The order of words that are [`Self::sorted`] already.
    pub(crate) fn of_sorted(self) -> Self {
        let bits = |number: u32| (1 << number) - 1;
        Self {
            rest: bits(self.rest_bits),
            minor: bits(self.minor_bits) << self.rest_bits,
            major: bits(self.major_bits) << (self.rest_bits + self.minor_bits),
            ..self
        }
    }

    /// The bits of a key in order: the rest lowest, then the minor pattern, then the major one.
    #[inline(always)]
    pub(crate) fn sorted(self, key: u64, extract: impl Fn(u64, u64) -> u64) -> u64 {
        extract(key, self.rest)
            | extract(key, self.minor) << self.rest_bits
            | extract(key, self.major) << (self.rest_bits + self.minor_bits)
    }
}

#[cfg(test)]
impl Order {
    /// What sorting by cell must come to: where each cell starts, and the end, and the rests of
    /// `keys` by cell, those of one cell in the order of the list.
    pub(crate) fn sort_plainly(self, keys: &[u64]) -> (Vec<u32>, Vec<u64>) {
        let mut sorted: Vec<u64> = keys.iter().map(|&k| self.sorted(k, extract)).collect();
        sorted.sort_by_key(|&key| key >> self.rest_bits);
        let before = |cell: u64| sorted.partition_point(|&key| key >> self.rest_bits < cell);
        let cells = 1 << (self.major_bits + self.minor_bits);
        let offsets = (0..=cells).map(|cell| u32::try_from(before(cell)).unwrap());
        let rest = |key: &u64| key & ((1 << self.rest_bits) - 1);
        (offsets.collect(), sorted.iter().map(rest).collect())
    }
}

/// All that it takes to take keys apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dissection<'a> {
    pub(crate) order: Order,
    /// Set to the order, where the CPU has no instruction for it.
    pub(crate) tables: &'a ByteTables,
}

/// What a key's bytes contribute to [`Order::sorted`], for CPUs without an instruction for it.
#[derive(Clone, Debug)]
pub(crate) struct ByteTables(Box<[[u64; 256]; 8]>);

impl Default for ByteTables {
    fn default() -> Self {
        Self(Box::new([[0; 256]; 8]))
    }
}

impl ByteTables {
    pub(crate) fn set(&mut self, order: Order) {
        for (byte, table) in (0_u32..).zip(self.0.iter_mut()) {
            for value in 1..256_usize {
                let lowest = value & value.wrapping_neg();
                table[value] = if value == lowest {
                    order.sorted((value as u64) << (8 * byte), extract)
                } else {
                    table[lowest] | table[value ^ lowest]
                };
            }
        }
    }

    #[inline(always)]
    pub(crate) fn sorted(&self, key: u64) -> u64 {
        let mut sorted = 0;
        for (byte, table) in key.to_le_bytes().into_iter().zip(self.0.iter()) {
            sorted |= table[usize::from(byte)];
        }
        sorted
    }
}

/// The bits of `word` under `mask`, moved together.
pub(crate) fn extract(word: u64, mut mask: u64) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while mask != 0 {
        bits |= (word >> mask.trailing_zeros() & 1) << at;
        mask &= mask - 1;
        at += 1;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_apart() {
        let (x1, x2) = (0b0101_0000, 0b0000_1100);
        let order = Order::of_masks(0xff, x1, x2);
        assert_eq!(order.sorted(0b0001_1011, extract), 0b0110_0011);
        let turned = Order::of_masks(0xff, x2, x1);
        assert_eq!(turned.sorted(0b0001_1011, extract), 0b1001_0011);
        let mut tables = ByteTables::default();
        tables.set(order);
        for key in 0..256 {
            assert_eq!(tables.sorted(key), order.sorted(key, extract), "{key}");
        }
    }
}
