//! The gRPC face: decodes, asks the driver, encodes, and decides nothing.

mod encode;
mod runs;
mod server;
mod work_queue;

pub use server::{ServeError, Server, bind};

use tonic::Status;

use crate::{driver::Stopped, sched::ControlError};

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Self {
        Self::unavailable(stopped.to_string())
    }
}

impl From<ControlError> for Status {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NoSuchRun(_) => Self::not_found(error.to_string()),
            ControlError::Over(_) | ControlError::Cancelled(_) => {
                Self::failed_precondition(error.to_string())
            }
        }
    }
}
