//! The coordinator: splits a run into tasks, keeps them durably, leases them to workers, and folds
//! their partial counts into the total.

// `println!` and `eprintln!` panic where a pipe is closed or a disk is full.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod app;
mod descriptors;
pub mod driver;
mod environment;
pub mod exit;
pub mod grpc;
pub mod queensctl;
pub mod sched;
pub mod store;
mod text;
