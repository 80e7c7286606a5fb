//! What a database holds, read from its tables: the runs, what is thought of workers, and whether
//! all of it is in order.

use super::{
    super::{
        Recheck, StoreError,
        files::Secret,
        line::BadLink,
        manifest,
        meter::Examined,
        recover::FoundRun,
        segments::Seal,
        trust::TrustChain,
        verify::{Overall, VerifyError, VerifyReport, verify_all},
    },
    lead,
    link::{FIRST_PATIENCE, Link, Server},
    pages::{Shared, Table},
    schema,
};
use crate::ledger::Draw;

/// What else is kept of a run, besides what its journal is checked with.
pub(super) struct KeptRun {
    pub(super) recheck: Option<Recheck>,
}

/// Every run of a database, in order of creation.
pub(super) fn find_runs(link: &Shared) -> Result<Vec<(FoundRun<Table>, KeptRun)>, StoreError> {
    const SQL: &str = "SELECT run, manifest, state, recheck, lines, head FROM queens.runs";
    let rows = link
        .lock()
        .call(async |session| session.query(SQL, &[]).await)?
        .unwrap_or_default();
    let mut all = Vec::new();
    for row in &rows {
        let name: String = row.get(0);
        let damaged = |what: String| {
            let place = format!("{}, table queens.runs, run {name}", link.place());
            StoreError::damaged(place.as_ref(), None, what)
        };
        let manifest = manifest::decode(row.get(1)).map_err(|bad| damaged(bad.to_string()))?;
        let run = manifest.run;
        if run.to_string() != name {
            return Err(damaged(format!("its manifest is of run {run}")));
        }
        let state: Option<String> = row.get(2);
        let saved = state
            .map(|text| manifest::decode_state(run, &text))
            .transpose()
            .map_err(|bad| damaged(bad.to_string()))?;
        let recheck: Option<String> = row.get(3);
        let recheck = recheck
            .map(|text| manifest::decode_recheck(run, &text))
            .transpose()
            .map_err(|bad| damaged(bad.to_string()))?;
        let head: String = row.get(5);
        // How the last transaction left the journal: one that is shorter has lost lines.
        let end = Seal {
            segment: 0,
            lines: lead::unsigned(row.get(4)),
            head: head
                .parse()
                .map_err(|bad: BadLink| damaged(bad.to_string()))?,
        };
        let table = Table {
            link: link.clone(),
            run,
        };
        let found = FoundRun {
            files: table,
            manifest,
            saved,
            seals: vec![end],
        };
        all.push((found, KeptRun { recheck }));
    }
    all.sort_by_key(|(found, _)| found.manifest.age());
    Ok(all)
}

pub(super) fn read_trust(link: &Shared) -> Result<TrustChain, StoreError> {
    const SQL: &str = "SELECT line FROM queens.trust ORDER BY seq";
    let rows = link
        .lock()
        .call(async |session| session.query(SQL, &[]).await)?
        .unwrap_or_default();
    let mut chain = TrustChain::new();
    for (number, row) in (1..).zip(&rows) {
        chain
            .take(row.get(0), number)
            .map_err(|what| StoreError::Damaged {
                path: format!("{}, table queens.trust", link.place()).into(),
                line: Some(number),
                what: what.to_string(),
                remedy: "restore it from a backup".to_owned(),
            })?;
    }
    Ok(chain)
}

/// Rechecks every line of every journal in a database, as [`super::super::verify_watched()`] does in a directory;
/// reads only, also while a coordinator writes.
pub fn verify_database(
    url: &str,
    watch: &mut dyn FnMut(Examined),
) -> Result<VerifyReport, VerifyError> {
    const SQL: &str = "SELECT leads, (SELECT version FROM queens.schema_version), \
         (SELECT content FROM queens.kept WHERE name = 'secret') FROM queens.leader";
    let link = Shared::new(Link::new(Server::of(url)?, FIRST_PATIENCE)?);
    let place = link.place().to_owned();
    let row = link
        .lock()
        .call(async |session| session.query(SQL, &[]).await);
    let row = row?.and_then(|mut rows| rows.pop()).ok_or_else(|| {
        let what = "its table queens.leader is empty".to_owned();
        link.lock().server.failed(what, "restore it from a backup")
    })?;
    let (version, ours) = (row.get::<_, i64>(1), schema::MIGRATIONS.len() as i64);
    if version != ours {
        let what = format!("its tables have version {version}, this program knows {ours}");
        let advice = "use the release that made them, or start a coordinator of this one on it";
        return Err(link.lock().server.failed(what, advice).into());
    }
    let secret: Option<String> = row.get(2);
    let secret = secret
        .map(|text| Secret::decode(text.trim_end()))
        .transpose()
        .map_err(|what| StoreError::damaged(format!("{place}, secret").as_ref(), None, what))?;
    let kept = Overall {
        live: row.get(0),
        draw: secret.map(|secret| Draw::new(secret.0)),
        trust: read_trust(&link)?.records().to_vec(),
    };
    let runs = find_runs(&link)?;
    let runs = runs.into_iter().map(|(found, kept)| (found, kept.recheck));
    verify_all(place.into(), runs.map(Ok), &kept, watch)
}
