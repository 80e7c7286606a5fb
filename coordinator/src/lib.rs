//! The coordinator: splits a run into tasks, keeps them durably, leases them to workers, and folds
//! their partial counts into the total.

// `println!` and `eprintln!` panic where a pipe is closed or a disk is full.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(any(feature = "archive", feature = "postgres"))]
pub mod apart;
pub mod app;
pub mod certify;
pub mod checks;
mod descriptors;
pub mod doors;
pub mod driver;
pub mod exit;
pub mod grpc;
pub mod http;
pub mod ledger;
pub mod name;
pub mod render;
pub mod room;
pub mod sched;
pub mod store;
pub mod text;
