//! A plan as a picture: its units on sheets of rows and columns, for people who watch a run.

use std::ops::Range;

use super::{
    Division, Plan,
    sheet::{Sheet, Strip},
};

impl Plan {
    /// The sheets: for frames one for each kind and number of queens, with a row for each A and a
    /// column for each C, by rank; for rows one, with the first two queens that a unit has.
    pub fn sheets(&self) -> Vec<Sheet> {
        match self.division() {
            Division::Rows(rows) => rows.sheets(),
            Division::Frames(frames) => frames.sheets(),
        }
    }

    /// What a row and a column of a sheet stand for, in words.
    pub fn axes(&self) -> [&'static str; 2] {
        match self.division() {
            Division::Rows(rows) => rows.axes(),
            Division::Frames(_) => ["A, the columns of P", "C, the columns of R"],
        }
    }

    /// Where these units lie, in their order. Units whose place is one are one strip of width 1.
    ///
    /// # Panics
    /// If the plan has fewer units.
    pub fn strips(&self, units: Range<u64>, visit: &mut dyn FnMut(Strip)) {
        assert!(units.end <= self.units(), "units {units:?}");
        match self.division() {
            Division::Rows(rows) => rows.strips(units, visit),
            Division::Frames(frames) => frames.strips(units, visit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{board::Board, method::Layout, plan::PlanSpec};

    fn plan(n: u8, layout: Layout) -> Plan {
        let spec = PlanSpec {
            task_cost: 1_000,
            ..PlanSpec::new(Board::new(n).unwrap(), layout)
        };
        Plan::new(spec).unwrap()
    }

    #[test]
    fn tasks_cover_each_frame_of_the_sheets_once() {
        for n in 4..=15 {
            let plan = plan(n, Layout::Frames);
            let sheets = plan.sheets();
            let mut seen = BTreeSet::new();
            for task in 0..plan.tasks() {
                let units = plan.task_units(super::super::TaskId(task));
                plan.strips(units, &mut |strip| {
                    let sheet = &sheets[strip.sheet];
                    assert!(strip.row < sheet.rows && strip.columns.end <= sheet.columns);
                    for column in strip.columns {
                        assert!(seen.insert((strip.sheet, strip.row, column)), "N = {n}");
                    }
                });
            }
            assert_eq!(seen.len() as u64, plan.units(), "N = {n}");
        }
    }

    #[test]
    fn units_of_rows_lie_on_one_sheet_and_a_place_has_consecutive_ones() {
        for layout in [Layout::FirstRows, Layout::Border] {
            for n in 1..=12 {
                let plan = plan(n, layout);
                let sheets = plan.sheets();
                assert_eq!(sheets.len(), 1);
                let mut places = Vec::new();
                plan.strips(0..plan.units(), &mut |strip| {
                    assert!(strip.row < sheets[0].rows && strip.columns.end <= sheets[0].columns);
                    assert_eq!(strip.columns.end - strip.columns.start, 1);
                    places.push((strip.row, strip.columns.start));
                });
                places.dedup();
                let distinct: BTreeSet<_> = places.iter().collect();
                assert_eq!(
                    distinct.len(),
                    places.len(),
                    "N = {n}, {layout:?}: one run each"
                );
            }
        }
    }
}
