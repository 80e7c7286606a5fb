//! The cluster harness shared by the integration tests.

pub mod face;
