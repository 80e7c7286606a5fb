//! What a plan's units lie on, as a picture.

use std::ops::Range;

/// Units that are told apart by two things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// What its units have in common; empty where there is but one sheet.
    pub name: String,
    /// How many rows there are.
    pub rows: u64,
    /// How many columns there are.
    pub columns: u64,
}

/// Consecutive units side by side in one row of a sheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// Which of the plan's sheets, from 0 on.
    pub sheet: usize,
    /// Its row, below [`Sheet::rows`].
    pub row: u64,
    /// Its columns, below [`Sheet::columns`]; never empty.
    pub columns: Range<u64>,
}
