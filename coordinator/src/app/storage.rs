//! What a coordinator keeps its runs, keys and tokens in: its data directory, or a database that it
//! may have to wait for.

use std::{path::Path, sync::Arc};

use tokio::sync::watch;

use worker::config::host_name;

use crate::{
    doors::Vault,
    sched::Millis,
    store::{DiskStore, Leader, Store, StoreError, StoreUrl, signing_key},
};

/// All of it, opened.
pub(super) struct Storage {
    pub(super) store: Box<dyn Store>,
    pub(super) vault: Vault,
    /// What certificates are signed with.
    pub(super) signing_key: [u8; 32],
    pub(super) leader: Leader,
    pub(super) replaced: Replaced,
}

/// Tells when another coordinator has taken over.
pub(super) struct Replaced(Option<watch::Receiver<Option<Arc<str>>>>);

impl Replaced {
    /// Who leads instead; waits for ever where that cannot be.
    pub(super) async fn by(&mut self) -> String {
        if let Some(told) = &mut self.0
            && let Ok(by) = told.wait_for(Option::is_some).await
            && let Some(by) = by.as_deref()
        {
            return by.to_owned();
        }
        std::future::pending().await
    }
}

/// By what name others are told of this process.
fn own_name() -> String {
    format!("{} (process {})", host_name().trim(), std::process::id())
}

impl Storage {
    /// In a data directory.
    pub(super) fn directory(dir: &Path, now: Millis) -> Result<Self, StoreError> {
        let store = DiskStore::open(dir)?;
        Ok(Self {
            leader: Leader {
                name: own_name(),
                term: store.term(),
                since_unix_ms: now.0,
            },
            store: Box::new(store),
            vault: Vault::of(dir),
            signing_key: signing_key(dir)?,
            replaced: Replaced(None),
        })
    }

    /// In a database, as soon as no other coordinator leads there.
    #[cfg(not(feature = "postgres"))]
    #[expect(clippy::unused_async, reason = "with PostgreSQL it waits")]
    pub(super) async fn database(url: &StoreUrl) -> anyhow::Result<Self> {
        url.reveal(std::env::args())?;
        Err(crate::store::BadStoreUrl::NotBuilt.into())
    }

    /// In a database, as soon as no other coordinator leads there.
    #[cfg(feature = "postgres")]
    pub(super) async fn database(url: &StoreUrl) -> anyhow::Result<Self> {
        database::open(url).await
    }
}

#[cfg(feature = "postgres")]
mod database {
    use std::{sync::Arc, thread};

    use tokio::sync::oneshot;

    use super::{Replaced, Storage, own_name};
    use crate::{
        apart::apart,
        doors::{Cabinet, CabinetError, Vault},
        store::{Leader, PgStore, PgVault, StoreError, StoreUrl},
        text::{moment, tell},
    };

    /// On a thread of its own: it blocks, for days where it stands by, and a process that is told to
    /// end does not wait for it.
    pub(super) async fn open(url: &StoreUrl) -> anyhow::Result<Storage> {
        let secret = url.reveal(std::env::args())?;
        let place = url.to_string();
        let (done, opened) = oneshot::channel();
        thread::Builder::new()
            .name("standby".to_owned())
            .spawn(move || {
                let waits = &mut |leader: &Leader| waits(&place, leader);
                // Nobody waits for it any more when the process is on its way out.
                let _ = done.send(storage(&secret, &own_name(), waits));
            })?;
        Ok(opened.await??)
    }

    fn waits(place: &str, leader: &Leader) {
        tell(&format!(
            "standing by: {} leads {place} since {} (term {}); this one takes over when it is silent",
            leader.name,
            moment(leader.since_unix_ms),
            leader.term
        ));
    }

    fn storage(
        secret: &str,
        name: &str,
        waits: &mut dyn FnMut(&Leader),
    ) -> Result<Storage, StoreError> {
        let store = PgStore::open(secret, name, waits)?;
        let vault = store.vault()?;
        Ok(Storage {
            signing_key: vault.drawn("signing-key")?,
            leader: store.leader().clone(),
            replaced: Replaced(Some(store.replaced())),
            vault: Vault::in_cabinet(Arc::new(InDatabase(vault))),
            store: Box::new(store),
        })
    }

    /// Keys and tokens in the database.
    struct InDatabase(PgVault);

    /// Under names as in the folder of a data directory.
    fn named(name: &str) -> String {
        format!("doors/{name}")
    }

    impl Cabinet for InDatabase {
        fn read(&self, name: &str) -> Result<Option<String>, CabinetError> {
            apart(|| self.0.read(&named(name))).map_err(CabinetError::new)
        }

        fn write(&self, name: &str, text: &str) -> Result<(), CabinetError> {
            apart(|| self.0.write(&named(name), text)).map_err(CabinetError::new)
        }

        fn place(&self, name: &str) -> String {
            self.0.place(&named(name))
        }
    }
}
