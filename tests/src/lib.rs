//! The harness shared by the integration tests and examples of this package.

pub mod cluster;
pub mod load;
pub mod process;
pub mod service;
pub mod sim;
