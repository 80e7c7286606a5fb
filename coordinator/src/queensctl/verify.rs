//! `queensctl verify`.

use std::path::PathBuf;

use clap::Args;

use super::output::print;
use crate::{
    exit::Exit,
    store::{self, VerifyError},
    text::tell,
};

/// Options of `verify`.
#[derive(Clone, Debug, Args)]
pub(super) struct VerifyOptions {
    /// The data directory
    dir: PathBuf,
}

pub(super) fn verify(options: &VerifyOptions) -> anyhow::Result<Exit> {
    match store::verify(&options.dir) {
        Ok(report) => {
            print(&report.to_string())?;
            Ok(Exit::Success)
        }
        Err(flawed @ VerifyError::Flawed(_)) => {
            tell(&format!("error: {flawed}"));
            Ok(Exit::Contradicted)
        }
        Err(other) => Err(other.into()),
    }
}
