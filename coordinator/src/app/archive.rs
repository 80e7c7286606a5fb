//! The copy that follows the data directory, where the command line asks for one.

use super::Options;
use crate::store::{Copied, StoreError};

#[cfg(feature = "archive")]
use crate::store::Archiver;

/// Copies as long as it lives.
pub(super) struct Archive {
    #[cfg(feature = "archive")]
    archiver: Option<Archiver>,
}

#[cfg(feature = "archive")]
impl Archive {
    pub(super) fn start(options: &Options) -> Result<Self, StoreError> {
        let to = options.archive.as_ref();
        let start = |to| tokio::task::block_in_place(|| Archiver::start(&options.data_dir, to));
        Ok(Self {
            archiver: to.map(start).transpose()?,
        })
    }

    /// Up to when the data directory is in it.
    pub(super) fn copied(&self) -> Option<Copied> {
        self.archiver.as_ref().map(Archiver::copied)
    }

    /// Copies what is left, and ends.
    pub(super) fn end(self) {
        tokio::task::block_in_place(|| drop(self.archiver));
    }
}

#[cfg(not(feature = "archive"))]
#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "there is one with the feature"
)]
impl Archive {
    pub(super) fn start(_: &Options) -> Result<Self, StoreError> {
        Ok(Self {})
    }

    pub(super) fn copied(&self) -> Option<Copied> {
        None
    }

    pub(super) fn end(self) {}
}
