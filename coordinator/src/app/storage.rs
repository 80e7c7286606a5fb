//! The storage of runs, keys and tokens: a data directory, optionally archived, or
//! a database with one leader at a time.

use std::{path::Path, sync::Arc};

use cli::threads::host_name;
use scheduler::Millis;
use store::{
    Archive, ArchivePlace, Archiver, DiskStore, Leader, Observed, Outages, SecretStore, Store,
    StoreError, StoreUrl, signing_key,
};
use tokio::{sync::watch, task::block_in_place};

use super::standby::Standby;

pub(super) struct Storage {
    pub(super) store: Box<dyn Store>,
    pub(super) archiver: Option<Archiver>,
    pub(super) secrets: SecretStore,
    /// The key that signs certificates.
    pub(super) signing_key: [u8; 32],
    pub(super) leader: Leader,
    pub(super) outages: Outages,
    pub(super) replaced: Replaced,
}

/// The notification of a failover to another coordinator.
pub(super) struct Replaced(Option<watch::Receiver<Option<Arc<str>>>>);

impl Replaced {
    /// Waits for a failover and returns the new leader.
    pub(super) async fn by(&mut self) -> String {
        if let Some(replaced) = &mut self.0
            && let Ok(by) = replaced.wait_for(Option::is_some).await
            && let Some(by) = by.as_deref()
        {
            return by.to_owned();
        }
        std::future::pending().await
    }
}

/// Returns the name by which a standby knows this process if it leads.
fn own_name() -> String {
    format!("{} (process {})", host_name().trim(), std::process::id())
}

impl Storage {
    /// Opens a data directory, after its archive.
    pub(super) fn directory(
        dir: &Path,
        archive: Option<&ArchivePlace>,
        now: Millis,
    ) -> Result<Self, StoreError> {
        let (store, archiver) = block_in_place(|| {
            let archive = archive.map(|place| Archive::of(dir, place)).transpose()?;
            let store = DiskStore::open(dir)?;
            let archiver = archive.map(|archive| Archiver::start(dir, archive)).transpose()?;
            Ok::<_, StoreError>((store, archiver))
        })?;
        Ok(Self {
            archiver,
            leader: Leader { name: own_name(), term: store.term(), since_unix_ms: now.0 },
            store: Box::new(store),
            outages: Outages::default(),
            secrets: SecretStore::of_directory(dir),
            signing_key: signing_key(dir)?,
            replaced: Replaced(None),
        })
    }

    /// Opens a database once no other coordinator is its leader.
    /// This may take days, so a standby waits on a thread that does not delay the exit.
    pub(super) async fn database(url: &StoreUrl, mut standby: Standby) -> anyhow::Result<Self> {
        let secret = url.reveal(std::env::args_os())?;
        let mut open = move || -> Result<Self, StoreError> {
            let mut waits = |seen: &Observed| standby.observe(&secret, seen);
            let store = store::PgStore::open(&secret, &own_name(), &mut waits)?;
            Ok(Self {
                archiver: None,
                signing_key: store.signing_key()?,
                leader: store.leader().clone(),
                outages: store.outages(),
                replaced: Replaced(Some(store.replaced())),
                secrets: store.secrets()?,
                store: Box::new(store),
            })
        };
        let (done, opened) = tokio::sync::oneshot::channel();
        // The receiver is gone if the process exits.
        let work = move || drop(done.send(open()));
        std::thread::Builder::new().name("standby".to_owned()).spawn(work)?;
        Ok(opened.await??)
    }
}
