//! The secret that identifies this worker to its coordinator.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use proto::connect::WorkerSecret;
use tokio::task::spawn_blocking;

/// The secret's file in the spool directory.
const FILE: &str = "secret";

/// Identity of a worker; the coordinator issues the secret with its first reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The spool directory; without it, the worker gets a new identity at every start.
    directory: Option<PathBuf>,
    secret: Arc<Mutex<Option<WorkerSecret>>>,
    /// Whether another secret is of no use: the results are those of this identity.
    is_fixed: bool,
}

impl Identity {
    /// Creates an identity that no coordinator may replace.
    pub(crate) fn fixed(secret: WorkerSecret) -> Self {
        let secret = Arc::new(Mutex::new(Some(secret)));
        Self { directory: None, secret, is_fixed: true }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Reads the secret of an earlier process.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let secret = Arc::new(Mutex::new(read(directory)?));
        Ok(Self { directory: Some(directory.to_owned()), secret, is_fixed: false })
    }

    pub(crate) fn secret(&self) -> Option<WorkerSecret> {
        self.secret.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores a secret that the coordinator issued.
    pub(crate) async fn store(&self, issued: WorkerSecret) {
        let worker = issued.worker();
        let before = {
            let mut secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
            secret.replace(issued.clone())
        };
        match before {
            None => tracing::info!("the coordinator knows this worker as {worker}"),
            Some(before) => tracing::warn!(
                "the coordinator does not know this worker as {}: the coordinator or the token has changed; \
                 this worker is now {worker}",
                before.worker()
            ),
        }
        let Some(directory) = self.directory.clone() else { return };
        let path = directory.join(FILE);
        let file = path.clone();
        let written = spawn_blocking(move || write(&file, &issued)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::warn!(
                "{}: {error}; after a restart this worker will have a new identity",
                path.display()
            );
        }
    }
}

fn read(directory: &Path) -> io::Result<Option<WorkerSecret>> {
    let path = directory.join(FILE);
    match fs::read(&path) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            let secret = text.trim_end().parse();
            if secret.is_err() {
                tracing::warn!(
                    "{} is damaged; the coordinator will issue a new secret",
                    path.display()
                );
            }
            Ok(secret.ok())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file atomically, readable by its owner only.
pub(crate) fn write(path: &Path, secret: &WorkerSecret) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    writeln!(file, "{}", secret.expose())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_is_stored_readable_by_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let open = || Identity::open(home.path()).unwrap();
        let identity = open();
        assert_eq!(identity.secret(), None);
        let issued = WorkerSecret::new([7; 32]);
        identity.store(issued.clone()).await;
        assert_eq!(identity.secret(), Some(issued.clone()));
        assert_eq!(open().secret(), Some(issued));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(home.path().join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // Another coordinator issues a new secret.
        let second = WorkerSecret::new([8; 32]);
        identity.store(second.clone()).await;
        assert_eq!(open().secret(), Some(second));
        for damaged in ["nonsense\n", "", "\u{0}"] {
            fs::write(home.path().join(FILE), damaged).unwrap();
            assert_eq!(open().secret(), None);
        }
    }

    #[tokio::test]
    async fn a_worker_without_a_directory_keeps_its_secret_in_memory() {
        let identity = Identity::default();
        identity.store(WorkerSecret::new([7; 32])).await;
        assert_eq!(identity.secret(), Some(WorkerSecret::new([7; 32])));
    }
}
