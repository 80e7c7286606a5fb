//! Where runs are kept: what `verify` and `copy` are given.

use std::{convert::Infallible, path::PathBuf, str::FromStr};

use coordinator::store::StoreUrl;

/// A data directory, or a database.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A database, or the file with its address.
    Database(StoreUrl),
}

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match StoreUrl::is_meant(text) || text.starts_with('@') {
            true => Self::Database(text.parse()?),
            false => Self::Directory(text.into()),
        })
    }
}

/// What is done with databases, or said where this program has no PostgreSQL.
#[cfg(not(feature = "postgres"))]
pub(super) mod database {
    use std::path::Path;

    use coordinator::store::{BadStoreUrl, Examined, StoreUrl, VerifyError, VerifyReport};

    type Verified = Result<VerifyReport, VerifyError>;

    pub(in super::super) fn verify(
        url: &StoreUrl,
        _: &mut (dyn FnMut(Examined) + Send),
    ) -> Result<Verified, BadStoreUrl> {
        not_built(url)
    }

    pub(in super::super) fn copy_in(_: &Path, url: &StoreUrl) -> anyhow::Result<usize> {
        Ok(not_built(url)?)
    }

    pub(in super::super) fn copy_out(url: &StoreUrl, _: &Path) -> anyhow::Result<usize> {
        Ok(not_built(url)?)
    }

    fn not_built<T>(url: &StoreUrl) -> Result<T, BadStoreUrl> {
        url.reveal(std::env::args())?;
        Err(BadStoreUrl::NotBuilt)
    }
}

/// What is done with databases.
#[cfg(feature = "postgres")]
pub(super) mod database {
    use std::path::Path;

    use coordinator::{
        apart::apart,
        store::{
            self, BadStoreUrl, Examined, Leader, StoreError, StoreUrl, VerifyError, VerifyReport,
        },
        text::tell,
    };

    type Verified = Result<VerifyReport, VerifyError>;

    pub(in super::super) fn verify(
        url: &StoreUrl,
        watch: &mut (dyn FnMut(Examined) + Send),
    ) -> Result<Verified, BadStoreUrl> {
        let secret = url.reveal(std::env::args())?;
        Ok(apart(|| store::verify_database(&secret, watch)))
    }

    pub(in super::super) fn copy_in(from: &Path, to: &StoreUrl) -> anyhow::Result<usize> {
        let secret = to.reveal(std::env::args())?;
        let waits = &mut |leader: &Leader| waits(leader);
        let copied: Result<_, StoreError> = apart(|| store::copy_to_database(from, &secret, waits));
        Ok(copied?)
    }

    pub(in super::super) fn copy_out(from: &StoreUrl, to: &Path) -> anyhow::Result<usize> {
        let secret = from.reveal(std::env::args())?;
        let waits = &mut |leader: &Leader| waits(leader);
        let copied: Result<_, StoreError> = apart(|| store::copy_to_directory(&secret, to, waits));
        Ok(copied?)
    }

    fn waits(leader: &Leader) {
        tell(&format!(
            "waiting: {} leads there; stop its coordinators first (Ctrl-C gives this up)",
            leader.name
        ));
    }
}
