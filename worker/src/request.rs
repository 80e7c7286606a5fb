//! What `count` and `estimate` make of their command line before they begin.

use std::num::NonZeroU16;

use common::{
    board::Board,
    choice::{BadChoice, Choice, MethodChoice, Prefix, choose},
    crews::{Crews, Machine},
    plan::{BadSpec, Plan},
    sample::BadFraction,
};
use worker::{
    config::{Threads, TooLittleMemory, crews, machine},
    memory::MemorySize,
};

use crate::cli::Resources;

/// What makes a count, or an estimate, impossible before it begins.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRequest {
    #[error(transparent)]
    Choice(#[from] BadChoice),
    #[error(transparent)]
    Spec(#[from] BadSpec),
    #[error(transparent)]
    Fraction(#[from] BadFraction),
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
}

/// What there is to count with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    pub(crate) threads: Threads,
    pub(crate) memory: MemorySize,
    crews: Option<NonZeroU16>,
}

impl Means {
    /// What the command line leaves to this machine is looked up once: free memory changes.
    pub(crate) fn of(resources: &Resources) -> Self {
        Self {
            threads: resources.threads(),
            memory: resources.memory(),
            crews: resources.crews,
        }
    }

    pub(crate) fn machine(&self) -> Machine {
        machine(self.memory, self.threads, self.crews)
    }

    /// How to count the board, where it can be.
    pub(crate) fn choice(
        &self,
        board: Board,
        (method, prefix): (MethodChoice, Option<Prefix>),
    ) -> Result<Choice, BadRequest> {
        let chosen = choose(board, method, prefix, Some(self.machine()));
        chosen.map_err(|bad| match bad {
            BadChoice::Memory { board, least, .. } => {
                TooLittleMemory::new(Some(board), self.memory, self.threads, least).into()
            }
            BadChoice::PrefixOfFrames => bad.into(),
        })
    }

    /// How the threads divide themselves for a plan.
    pub(crate) fn crews(&self, plan: &Plan) -> Result<Crews, TooLittleMemory> {
        crews(plan, self.memory, self.threads, self.crews)
    }
}
