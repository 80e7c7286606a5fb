//! The runs and the trust log of a database, read from its tables and checked.

use scheduler::ledger::{Recheck, RecheckSampler, Settings};

use crate::{
    StoreError,
    directory::files::Secret,
    journal::{JournalEnd, manifest, segments::Seal, text::Damage, trust::TrustChain},
    journal_store::recover::FoundRun,
    postgres::{
        connection::{DbConnection, STARTUP_TIMEOUT, Server},
        schema,
        tables::{Shared, Table, unsigned},
    },
    verify::{Examined, SharedData, VerifyError, VerifyReport, verify_all},
};

/// Finds every run of a database, in order of creation.
pub(super) fn find_runs(link: &Shared) -> Result<Vec<FoundRun<Table>>, StoreError> {
    let rows = link.query(
        "SELECT run, manifest, state, lines, head, symmetric_counts, settings FROM queens.runs",
        &[],
    )?;
    let mut all = Vec::new();
    for row in &rows {
        let name: String = row.get(0);
        let found = || -> Result<FoundRun<Table>, Damage> {
            let manifest = manifest::decode(row.get(1))?;
            let run = manifest.run;
            if run.to_string() != name {
                return Err(Damage(format!("its manifest belongs to run {run}")));
            }
            let state: Option<&str> = row.get(2);
            let saved = state.map(|text| manifest::decode_state(run, text)).transpose()?;
            // The end that the last transaction left: a shorter journal has lost lines.
            let (lines, head) = (unsigned(row.get(3)), row.get::<_, &str>(4).parse()?);
            let end =
                Seal::new(run, 0, &JournalEnd { lines, head, ..JournalEnd::empty(&manifest) });
            let files = Table { link: link.clone(), run };
            let symmetric: Option<&str> = row.get(5);
            let symmetric = symmetric.and_then(|text| manifest::decode_symmetric(run, text).ok());
            let settings: Option<&str> = row.get(6);
            let settings = settings.map(|text| manifest::decode_settings(run, text)).transpose()?;
            let settings = settings.unwrap_or_else(|| Settings::new(&manifest, Recheck::default()));
            let seals = vec![end];
            Ok(FoundRun { files, manifest, saved, settings, symmetric, seals })
        };
        all.push(found().map_err(|what| {
            let place = format!("{}, table queens.runs, run {name}", link.place());
            StoreError::damaged(place.as_ref(), None, what)
        })?);
    }
    all.sort_by_key(|found| found.manifest.age());
    Ok(all)
}

pub(super) fn read_trust(link: &Shared) -> Result<TrustChain, StoreError> {
    let rows = link.query("SELECT line FROM queens.trust ORDER BY seq", &[])?;
    let mut chain = TrustChain::new();
    for (number, row) in (1..).zip(&rows) {
        chain.take(row.get(0)).map_err(|what| {
            let place = format!("{}, table queens.trust", link.place());
            StoreError::damaged(place.as_ref(), Some(number), what)
        })?;
    }
    Ok(chain)
}

/// Verifies every line of every journal in a database.
/// Writes nothing, and works while a coordinator writes, like [`crate::verify_watched()`].
pub fn verify_database(
    url: &str,
    watch: &mut dyn FnMut(Examined),
) -> Result<VerifyReport, VerifyError> {
    const SQL: &str = "SELECT leads, (SELECT version FROM queens.schema_version), \
         (SELECT content FROM queens.texts WHERE name = 'secret') FROM queens.leader";
    let link = Shared::new(DbConnection::new(Server::of(url)?, STARTUP_TIMEOUT)?);
    let place = link.place().to_owned();
    let row = link.query(SQL, &[])?.pop().ok_or_else(|| link.lock().server.without_leader())?;
    let (version, ours) = (row.get::<_, i64>(1), schema::MIGRATIONS.len() as i64);
    if version != ours {
        let what = format!("its tables have version {version}, but this program supports {ours}");
        let advice =
            "use the release that created them, or let a coordinator of this release migrate them";
        return Err(link.lock().server.failed(what, advice).into());
    }
    let secret: Option<&str> = row.get(2);
    let secret = secret
        .map(|text| Secret::decode(text.trim_end()))
        .transpose()
        .map_err(|what| StoreError::damaged(format!("{place}, secret").as_ref(), None, what))?;
    let shared = SharedData {
        live: row.get(0),
        sampler: secret.map(|secret| RecheckSampler::new(secret.0)),
        trust: read_trust(&link)?.records,
    };
    verify_all(place.into(), &find_runs(&link)?, &shared, watch)
}
