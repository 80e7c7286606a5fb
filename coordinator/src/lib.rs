//! The coordinator: splits a run into tasks, keeps them durably, leases them to workers, and folds
//! their partial counts into the total.

pub mod driver;
pub mod grpc;
pub mod sched;
pub mod store;
