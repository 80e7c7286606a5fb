//! The tables, as a list of migrations.
//! Listed migrations are never changed: a change of the tables is a new migration at the end.
//!
//! ```text
//! queens.schema_version   the number of applied migrations
//! queens.leader           the fence: the leader's term, name and start, and the number of commits
//! queens.beat             the leader's heartbeat
//! queens.texts            keys, tokens, secrets and notes by the names of a data directory's files
//! queens.runs             a run's manifest, state, … as their files' texts, and its journal's end
//! queens.lines            the journals, line by line as on disk
//! queens.rows             the rows of tasks; can be rebuilt from the lines
//! queens.trust            the trust log, line by line as on disk
//! ```

use tokio_postgres::types::ToSql;

use crate::{
    StoreError,
    postgres::{FENCE, connection::DbConnection},
};

/// The migrations, in order.
/// All versions have the same first one, so an older leader and a newer standby understand each other.
pub(super) const MIGRATIONS: [&str; 2] = [LEADERS, RUNS];

/// The leader and the fence, whose exceptions [`super::link`] recognizes by code.
const LEADERS: &str = "
CREATE TABLE queens.leader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    term bigint NOT NULL,
    commits bigint NOT NULL,
    name text NOT NULL,
    since_unix_ms bigint NOT NULL,
    leads boolean NOT NULL
);
INSERT INTO queens.leader (term, commits, name, since_unix_ms, leads) VALUES (0, 0, '', 0, false);
CREATE TABLE queens.beat (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    beats bigint NOT NULL
);
INSERT INTO queens.beat (beats) VALUES (0);
CREATE TABLE queens.texts (name text PRIMARY KEY, content text NOT NULL);
-- The first statement of every transaction that writes. It locks the row that a take-over changes:
-- no standby takes over before the transaction ends. After a take-over the fence fails.
CREATE FUNCTION queens.fence(its_term bigint, its_commit bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now_leads queens.leader%ROWTYPE;
BEGIN
    SELECT * INTO STRICT now_leads FROM queens.leader FOR UPDATE;
    IF now_leads.term <> its_term THEN
        RAISE EXCEPTION USING ERRCODE = 'QN001',
            MESSAGE = format('%s leads in term %s', now_leads.name, now_leads.term);
    END IF;
    IF its_commit IS NULL THEN
        RETURN;
    END IF;
    IF now_leads.commits = its_commit THEN
        RAISE EXCEPTION USING ERRCODE = 'QN002', MESSAGE = 'kept before';
    END IF;
    IF now_leads.commits <> its_commit - 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'QN003',
            MESSAGE = format('commit %s does not follow %s', its_commit, now_leads.commits);
    END IF;
    UPDATE queens.leader SET commits = its_commit;
END
$$;
";

const RUNS: &str = "
CREATE TABLE queens.runs (
    run text PRIMARY KEY,
    manifest text NOT NULL,
    state text,
    settings text,
    symmetric_counts text,
    lines bigint NOT NULL,
    head text NOT NULL
);
CREATE TABLE queens.lines (
    run text NOT NULL,
    seq bigint NOT NULL,
    line text NOT NULL,
    PRIMARY KEY (run, seq)
);
CREATE TABLE queens.rows (
    run text NOT NULL,
    task bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (run, task)
) WITH (fillfactor = 70);
CREATE TABLE queens.trust (seq bigint PRIMARY KEY, line text NOT NULL);
";

/// Statements that create the schema if it does not exist.
pub(super) const BEGIN_SCHEMA: &str = "
CREATE SCHEMA IF NOT EXISTS queens;
CREATE TABLE IF NOT EXISTS queens.schema_version (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL
);
INSERT INTO queens.schema_version (version) VALUES (0) ON CONFLICT DO NOTHING;
";

/// A lock of the schema until the end of the transaction.
/// Otherwise two coordinators that start together could both change it.
pub(super) const SCHEMA_LOCK: &str = "SELECT pg_advisory_xact_lock(7171, 1)";

/// Applies the missing migrations of `list`; with a term, as the leader.
pub(super) fn migrate(
    link: &mut DbConnection,
    list: &[&str],
    term: Option<i64>,
) -> Result<(), StoreError> {
    let before = link.call(async |session| {
        let client = &session.client;
        client.batch_execute("BEGIN").await?;
        let migrated = async {
            client.batch_execute(SCHEMA_LOCK).await?;
            // A user may have the right to use the schema, but not to create it.
            if client
                .query_one("SELECT to_regclass('queens.schema_version') IS NULL", &[])
                .await?
                .get(0)
            {
                client.batch_execute(BEGIN_SCHEMA).await?;
            }
            let version = "SELECT version FROM queens.schema_version";
            let before: i64 = client.query_one(version, &[]).await?.get(0);
            let applied = usize::try_from(before).unwrap_or(0);
            if applied < list.len() {
                if let Some(term) = term {
                    client.query_one(FENCE, &[&term, &None::<i64>]).await?;
                }
                for migration in &list[applied..] {
                    client.batch_execute(migration).await?;
                }
                let now = i64::try_from(list.len()).expect("there are a few");
                let values: [&(dyn ToSql + Sync); 1] = [&now];
                let set = "UPDATE queens.schema_version SET version = $1";
                client.execute(set, &values).await?;
            }
            let encoding = client.query_one("SHOW server_encoding", &[]).await?.get::<_, String>(0);
            let fsync = client.query_one("SHOW fsync", &[]).await?.get::<_, String>(0);
            Ok((before, encoding, fsync == "on"))
        }
        .await;
        let end = match &migrated {
            Ok(_) => "COMMIT",
            Err(_) => "ROLLBACK",
        };
        match (migrated, client.batch_execute(end).await) {
            (Ok(migrated), Ok(())) => Ok(migrated),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    })?;
    let Some((before, encoding, fsync)) = before else {
        return Ok(());
    };
    let ours = MIGRATIONS.len() as i64;
    let failed = |what, advice| Err(link.server.failed(what, advice));
    if before > ours {
        let what = format!("its tables have version {before}, but this program supports {ours}");
        return failed(what, "use the release that created them, or a newer one");
    }
    if encoding != "UTF8" {
        let what = format!("its encoding is {encoding}");
        return failed(what, "create it with ENCODING 'UTF8'");
    }
    let place = &link.server.place;
    if term.is_some() && before > 1 && before < ours {
        tracing::info!("{place}: migrated its tables from version {before} to {ours}");
    }
    if term.is_some() && !fsync {
        tracing::warn!("{place}: fsync is off on the server: a power cut may lose results");
    }
    Ok(())
}
