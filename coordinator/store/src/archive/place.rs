//! The place of an archive: a directory, or a bucket of an S3 object store.

use std::{
    fmt, fs,
    path::{self, Component, Path, PathBuf},
    sync::Arc,
};

use object_store::{
    ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    local::LocalFileSystem,
    prefix::PrefixStore,
};
use proto::connect::install_crypto;

use crate::{StoreError, directory::files};

const SCHEME: &str = "s3://";

/// The value of `--archive`: a directory, or `s3://BUCKET/PREFIX`.
///
/// The environment configures a bucket: at least `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
/// `AWS_REGION`; `AWS_ENDPOINT` for providers other than Amazon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePlace(String);

impl From<&str> for ArchivePlace {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for ArchivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ArchivePlace {
    /// Returns the place's name in errors.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(&self.0)
    }

    /// Makes the directory private, because keys are copied into it. A bucket must already exist.
    pub(super) fn make(&self) -> Result<(), StoreError> {
        if self.0.starts_with(SCHEME) {
            return Ok(());
        }
        files::claim_folder(&self.path())
    }

    /// Makes an object's file private: the library creates it with the process's default mode.
    pub(super) fn protect(&self, name: &str) -> Result<(), StoreError> {
        #[cfg(unix)]
        if !self.0.starts_with(SCHEME) {
            use std::os::unix::fs::PermissionsExt as _;
            let path = self.path().join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                .map_err(files::failed("protect", &path))?;
        }
        Ok(())
    }

    /// Fails if `dir` contains this place or lies in it: the archive would copy itself. Both may be missing.
    pub(super) fn check_separate(&self, dir: &Path) -> Result<(), StoreError> {
        if self.0.starts_with(SCHEME) {
            return Ok(());
        }
        let (place, own) = (resolved(&self.path())?, resolved(dir)?);
        if place.starts_with(&own) || own.starts_with(&place) {
            let what = format!("it overlaps with {}", dir.display());
            return Err(StoreError::unusable(self, what, "give a directory on another disk"));
        }
        Ok(())
    }

    /// Opens the object store without reading from it.
    pub(super) fn open(&self) -> Result<Arc<dyn ObjectStore>, StoreError> {
        let failed = |error| super::cannot("open", &self.path(), &error);
        let Some(bucket) = self.0.strip_prefix(SCHEME) else {
            let path = self.path();
            if !path.is_dir() {
                let advice = "give the place of a coordinator's --archive";
                return Err(StoreError::unusable(self, "there is no such directory", advice));
            }
            let objects = LocalFileSystem::new_with_prefix(&path).map_err(failed)?;
            return Ok(Arc::new(objects.with_fsync(true)));
        };
        let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
        if bucket.is_empty() {
            let advice = "give s3://BUCKET/PREFIX";
            return Err(StoreError::unusable(self, "no bucket is named", advice));
        }
        install_crypto();
        let client = |key, value: &str| (AmazonS3ConfigKey::Client(key), value.to_owned());
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            // A failed pass is repeated, but the last pass must end soon.
            .with_retry(RetryConfig {
                max_retries: 3,
                retry_timeout: std::time::Duration::from_secs(30),
                ..RetryConfig::default()
            });
        for (key, value) in [
            client(ClientConfigKey::ConnectTimeout, "5 seconds"),
            client(ClientConfigKey::Timeout, "60 seconds"),
        ] {
            builder = builder.with_config(key, value);
        }
        let objects = builder.build().map_err(failed)?;
        Ok(match prefix.trim_end_matches('/') {
            "" => Arc::new(objects),
            prefix => Arc::new(PrefixStore::new(objects, prefix)),
        })
    }
}

/// Resolves the links of a path whose last parts may be missing.
fn resolved(path: &Path) -> Result<PathBuf, StoreError> {
    let mut resolved = PathBuf::new();
    for part in path::absolute(path).map_err(files::failed("find", path))?.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            part => resolved.push(part),
        }
        if let Ok(real) = fs::canonicalize(&resolved) {
            resolved = real;
        }
    }
    Ok(resolved)
}
