//! Code that the programs share: terminal, log, flags from the environment, signals, exit codes, and the
//! memory and threads of this machine.

pub mod duration;
pub mod environment;
pub mod exit;
pub mod memory;
pub mod priority;
pub mod terminal;
pub mod threads;
