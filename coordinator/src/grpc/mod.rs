//! The gRPC face: decodes, asks the driver, encodes, and decides nothing.

mod runs;
mod server;
mod tokens;
mod watch;
mod work_queue;

pub(crate) use runs::submitted;
pub use server::{ServeError, Server, bind};

use tonic::Status;

use crate::{
    driver::{RequestError, Stopped, SubmitError, WorkerError},
    sched::ControlError,
    store::StoreError,
};

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Self {
        Self::unavailable(stopped.to_string())
    }
}

impl From<ControlError> for Status {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NoSuchRun(_) => Self::not_found(error.to_string()),
            ControlError::Over(_) | ControlError::Cancelled(_) | ControlError::Live(_) => {
                Self::failed_precondition(error.to_string())
            }
        }
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<SubmitError> for Status {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Exists { .. } => Self::already_exists(error.to_string()),
            SubmitError::KeyUsed { .. } => Self::invalid_argument(error.to_string()),
        }
    }
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Stopped(error) => error.into(),
            RequestError::Control(error) => error.into(),
            RequestError::Submit(error) => error.into(),
            RequestError::Worker(WorkerError::NoSuchWorker(_)) => {
                Self::not_found(error.to_string())
            }
            RequestError::Worker(
                WorkerError::Ambiguous { .. } | WorkerError::Gone(_) | WorkerError::Local,
            ) => Self::failed_precondition(error.to_string()),
            RequestError::Store(error) => error.into(),
        }
    }
}
