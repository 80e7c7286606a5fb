//! Method `frames`: the Parts Assembly Approach.

pub mod hjoin;
use crate::{
    board::Board,
    count::{CountError, Setup, SetupError, Watch},
    plan::{BadSpec, PlanSpec, TaskId},
};
use std::ops::Range;

pub(crate) const PLAN_VERSION: u16 = 1;
pub(crate) fn default_task_cost(_board: Board) -> u64 {
    60_000_000
}

/// The frames of one board.
#[derive(Debug)]
pub struct Division {}
impl Division {
    pub(crate) fn new(spec: &PlanSpec) -> Result<Self, BadSpec> {
        Err(BadSpec::Unsupported {
            layout: spec.layout,
            board: spec.board,
            reason: "not built yet".to_owned(),
        })
    }
    pub(crate) fn units(&self) -> u64 {
        0
    }
    pub(crate) fn tasks(&self) -> u64 {
        0
    }
    pub(crate) fn task_units(&self, _task: TaskId) -> Range<u64> {
        0..0
    }
    pub(crate) fn task_cost(&self, _task: TaskId) -> u64 {
        1
    }
    pub(crate) fn task_limit(&self, _task: TaskId) -> u64 {
        0
    }
}

/// Counts frames on one thread.
#[derive(Debug)]
pub struct Counter {}
impl Counter {
    pub(crate) fn new(
        _division: std::sync::Arc<Division>,
        _setup: &Setup,
    ) -> Result<Self, SetupError> {
        Ok(Self {})
    }
    pub(crate) fn count(
        &mut self,
        _units: Range<u64>,
        _watch: &dyn Watch,
    ) -> Result<u64, CountError> {
        Err(CountError::Cancelled)
    }
}
