//! The cluster harness shared by the integration tests.

pub mod binaries;
pub mod cluster;
pub mod face;
pub mod http;
pub mod load;
pub mod pki;
pub mod postgres;
pub mod process;
pub mod recorder;
pub mod sim;
