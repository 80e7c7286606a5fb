//! `queensctl verify`.

use std::path::Path;

use anyhow::anyhow;
use clap::Args;

use super::{
    bar::Bar,
    output::print,
    place::{Place, database},
};
use coordinator::{
    exit::Exit,
    store::{self, Examined, RunState, StoreError, VerifyError},
    text::tell,
};

/// Options of `verify`.
#[derive(Clone, Debug, Args)]
pub(super) struct VerifyOptions {
    /// The data directory, as the coordinator names it when it starts; or the database, as the
    /// coordinator's --store
    #[arg(value_name = "DIR|URL|@FILE")]
    place: Place,
}

pub(super) fn verify(options: &VerifyOptions) -> anyhow::Result<Exit> {
    let bar = Bar::start("lines");
    let mut watch = |Examined { lines, part }| bar.show(lines, part);
    let verified = match &options.place {
        Place::Directory(dir) => store::verify_watched(dir, &mut watch),
        Place::Database(url) => database::verify(url, &mut watch)?,
    };
    drop(bar);
    match verified {
        Ok(report) => {
            print(&report.to_string())?;
            let mut runs = report.runs.iter();
            Ok(match runs.any(|run| run.state == RunState::Disputed) {
                true => Exit::Contradicted,
                false => Exit::Success,
            })
        }
        Err(flawed @ VerifyError::Flawed(_)) => {
            tell(&format!("error: {flawed}"));
            Ok(Exit::Contradicted)
        }
        Err(other) => Err(unreadable(other)),
    }
}

/// Why a data directory cannot be read, for those who only read it.
pub(super) fn unreadable(error: VerifyError) -> anyhow::Error {
    match error {
        VerifyError::NotOurs(dir) => not_ours(&dir, "it has no format.json"),
        VerifyError::Unreadable(StoreError::ForeignDirectory { dir, found }) => {
            not_ours(&dir, &format!("it holds '{found}'"))
        }
        VerifyError::Unreadable(StoreError::Io { path, source, .. }) => anyhow!(
            "cannot read {}: {source}; check the path, and who may read it",
            path.display()
        ),
        VerifyError::Unreadable(StoreError::FormatVersion { dir, found, ours }) => anyhow!(
            "{} has format {found}, this program knows format {ours}: use the queensctl of the \
             release that made it",
            dir.display()
        ),
        other => other.into(),
    }
}

/// The store's own words advise those who want to write.
fn not_ours(dir: &Path, why: &str) -> anyhow::Error {
    anyhow!(
        "{} is no data directory of a coordinator: {why}; give the one that the coordinator names \
         when it starts",
        dir.display()
    )
}
