//! The coordinator: serves runs to workers and operators over gRPC and HTTP.

// `println!` and `eprintln!` panic on a closed pipe or a full disk.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod app;
pub mod driver;
pub mod grpc;
pub mod http;
pub mod listen;
mod message;
mod status_cache;
