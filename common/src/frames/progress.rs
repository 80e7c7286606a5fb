//! What is told of a frame on the way.

use std::ops::ControlFlow;

use crate::{crew::OnDone, setup::CountError};

/// Tells of the work done within a frame.
pub(super) struct Progress<'a> {
    on_done: OnDone<'a>,
    /// Of the frame.
    cost: u64,
    /// How much of it was told.
    told: u64,
    /// How much of the frame is done, 0 … 1.
    done: f64,
    /// How much of the frame the present share is.
    pub(super) share: f64,
    /// How much of the share the present piece is.
    pub(super) piece: f64,
}

impl<'a> Progress<'a> {
    /// Of a frame that costs so much.
    pub(super) fn new(on_done: OnDone<'a>, cost: u64) -> Self {
        Self {
            on_done,
            cost,
            told: 0,
            done: 0.0,
            share: 0.0,
            piece: 0.0,
        }
    }

    /// `done` of the present piece was done since the call before.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    pub(super) fn advance(&mut self, done: f64) -> ControlFlow<()> {
        self.done += self.share * self.piece * done;
        let due = ((self.done * self.cost as f64) as u64).clamp(self.told, self.cost);
        let news = due - self.told;
        self.told = due;
        (self.on_done)(news)
    }

    /// The frame is done.
    ///
    /// # Errors
    /// `Cancelled` if who is told of it said to stop.
    pub(super) fn finish(&mut self) -> Result<(), CountError> {
        let rest = self.cost - self.told;
        self.told = self.cost;
        match (self.on_done)(rest) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CountError::Cancelled),
        }
    }
}
