//! `queensctl copy` and `queensctl restore`.

use anyhow::bail;
use clap::Args;

use super::{
    output::print,
    place::{Place, database},
};
#[cfg(feature = "archive")]
use coordinator::{apart::apart, store};
use coordinator::{exit::Exit, text::plural};

/// Options of `copy`.
#[derive(Clone, Debug, Args)]
pub(super) struct CopyOptions {
    /// What is copied: a data directory or a database
    #[arg(value_name = "DIR|URL|@FILE")]
    from: Place,

    /// Where to: an empty or new directory, or a database without runs
    #[arg(value_name = "URL|@FILE|DIR")]
    to: Place,
}

pub(super) fn copy(options: &CopyOptions) -> anyhow::Result<Exit> {
    let copied = match (&options.from, &options.to) {
        (Place::Directory(from), Place::Database(to)) => database::copy_in(from, to)?,
        (Place::Database(from), Place::Directory(to)) => database::copy_out(from, to)?,
        (Place::Directory(_), Place::Directory(_)) => {
            bail!("both are directories: copy them with cp -a while no coordinator has them open")
        }
        (Place::Database(_), Place::Database(_)) => {
            bail!("both are databases: copy them with pg_dump --schema=queens and pg_restore")
        }
    };
    print(&format!(
        "copied {} with keys, tokens and secrets; serve them from one place only",
        plural(copied, "run")
    ))?;
    Ok(Exit::Success)
}

/// Options of `restore`.
#[cfg(feature = "archive")]
#[derive(Clone, Debug, Args)]
pub(super) struct RestoreOptions {
    /// The archive, as the coordinator's --archive
    #[arg(value_name = "DIR|s3://BUCKET/PREFIX")]
    archive: store::ArchivePlace,

    /// Where to: an empty or new directory
    dir: std::path::PathBuf,
}

#[cfg(feature = "archive")]
pub(super) fn restore(options: &RestoreOptions) -> anyhow::Result<Exit> {
    apart(|| store::restore(&options.archive, &options.dir))?;
    let report = store::verify(&options.dir)?;
    print(&report.to_string())?;
    Ok(Exit::Success)
}
