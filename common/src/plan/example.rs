//! One solution of a unit, to show what a task counts.

use super::Plan;

/// A solution of a unit, and the squares that the unit fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Column of the queen in each row.
    pub queens: Vec<u8>,
    /// Columns that the unit allows in each row, as bits.
    pub allowed: Vec<u32>,
}

/// Attempts that share the steps of a search; some first queens allow no solution.
const ATTEMPTS: u32 = 16;

impl Plan {
    /// Searches for a random solution of a unit by placing at most `steps` queens.
    ///
    /// Some units have no solution.
    ///
    /// # Panics
    /// If the plan has no such unit.
    pub fn example(
        &self,
        unit: u64,
        steps: u32,
        random_below: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Example> {
        assert!(unit < self.units(), "unit {unit} of {}", self.units());
        let allowed = self.allowed(unit);
        (0..ATTEMPTS).find_map(|_| {
            let mut search = Search {
                allowed: &allowed,
                steps: steps / ATTEMPTS,
                random_below: &mut *random_below,
            };
            let mut queens = vec![0; allowed.len()];
            let rows = u32::MAX >> (u32::BITS as usize - allowed.len());
            let found = search.place(&mut queens, rows, Attacked::default());
            found.then(|| Example { queens, allowed: allowed.clone() })
        })
    }
}

/// Occupied lines, as bits.
#[derive(Clone, Copy, Default)]
struct Attacked {
    columns: u32,
    /// Index: row + column.
    rising: u64,
    /// Index: column - row + N - 1.
    falling: u64,
}

struct Search<'a> {
    allowed: &'a [u32],
    steps: u32,
    random_below: &'a mut dyn FnMut(u64) -> u64,
}

impl Search<'_> {
    /// Returns the allowed columns of a row that are not attacked.
    #[expect(clippy::cast_possible_truncation, reason = "a row has 32 columns at most")]
    fn free(&self, row: usize, attacked: Attacked) -> u32 {
        let falling = attacked.falling >> (self.allowed.len() - 1 - row);
        self.allowed[row] & !(attacked.columns | (attacked.rising >> row) as u32 | falling as u32)
    }

    /// Places a queen in each of the `open` rows, the most constrained first.
    fn place(&mut self, queens: &mut [u8], open: u32, attacked: Attacked) -> bool {
        let rows = (0..self.allowed.len()).filter(|row| open >> row & 1 == 1);
        let choices = rows.map(|row| (row, self.free(row, attacked)));
        let Some((row, mut free)) = choices.min_by_key(|(_, free)| free.count_ones()) else {
            return true;
        };
        while free != 0 && self.steps > 0 {
            self.steps -= 1;
            let skipped = (self.random_below)(u64::from(free.count_ones()));
            let bit = (0..skipped).fold(free, |rest, _| rest & (rest - 1));
            let column = bit.trailing_zeros();
            free &= !(1 << column);
            #[expect(clippy::cast_possible_truncation, reason = "below 32")]
            let small = column as u8;
            queens[row] = small;
            let with = Attacked {
                columns: attacked.columns | 1 << column,
                rising: attacked.rising | 1 << (row + usize::from(small)),
                falling: attacked.falling
                    | 1 << (usize::from(small) + self.allowed.len() - 1 - row),
            };
            if self.place(queens, open & !(1 << row), with) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        count::{Counter, CounterConfig, NoProgress},
        method::Layout,
        test_fixture::{plan_of_cost, random_from},
    };

    fn check(n: usize, example: &Example) {
        let queens = &example.queens;
        assert_eq!(queens.len(), n);
        for (row, &column) in queens.iter().enumerate() {
            assert!(example.allowed[row] >> column & 1 == 1);
            for (other, &other_column) in queens.iter().enumerate().skip(row + 1) {
                let distance = usize::from(column.abs_diff(other_column));
                assert!(distance != 0 && distance != other - row, "N = {n}: {queens:?}");
            }
        }
    }

    /// Checks that every unit with a nonzero count has an example.
    ///
    /// A frame with count 0 may have one too: it may hold solutions that another frame counts.
    #[test]
    fn a_unit_with_solutions_has_a_valid_example() {
        for layout in [Layout::FirstRows, Layout::Border, Layout::Frames] {
            for n in 4..=9 {
                let plan = plan_of_cost(n, layout, 1_000);
                let mut counter = Counter::new(&plan, &CounterConfig::best(1 << 30)).unwrap();
                for unit in 0..plan.units() {
                    let example = plan.example(unit, u32::MAX, &mut random_from(unit));
                    let count = counter.count(unit..unit + 1, &NoProgress).unwrap();
                    let is_right = match layout {
                        Layout::Frames => count == 0 || example.is_some(),
                        Layout::FirstRows | Layout::Border => (count > 0) == example.is_some(),
                    };
                    assert!(is_right, "N = {n}, {layout:?}, unit {unit}");
                    example.iter().for_each(|example| check(n.into(), example));
                }
            }
        }
    }

    #[test]
    fn large_boards_have_an_example_within_few_steps() {
        for n in [20, 23, 26] {
            let plan = plan_of_cost(n, Layout::Frames, u64::MAX / 4);
            let mut random = random_from(u64::from(n));
            let mut found = 0;
            for _ in 0..40 {
                let unit = random(plan.units());
                if let Some(example) = plan.example(unit, 4_000, &mut random) {
                    check(n.into(), &example);
                    found += 1;
                }
            }
            assert!(found >= 30, "N = {n}: {found} of 40");
        }
    }
}
