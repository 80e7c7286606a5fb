//! All integration tests, in one program, because linking it is slow. Without a package, as in
//! `cargo test --test all crash::directory`, Cargo compiles no library again.

mod access;
mod browser;
mod cli;
mod crash;
mod docs;
mod fuzz_corpus;
mod packages;
mod processes;
mod service;
mod simulation;
