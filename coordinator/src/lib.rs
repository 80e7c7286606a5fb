//! The coordinator: splits a run into tasks, keeps them durably, leases them to workers, and folds
//! their partial counts into the total.

pub mod app;
mod descriptors;
pub mod driver;
pub mod exit;
pub mod grpc;
pub mod queensctl;
pub mod sched;
pub mod store;
mod text;
