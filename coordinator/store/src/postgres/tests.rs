//! The suite of all stores, and tests of the fence, damage, migrations and outages.

use std::{cell::Cell, fs};

use common::messages::run::RunId;
use kit::postgres::Postgres;

use crate::{
    Change, Recheck, Store, StoreError,
    conformance::{self, Bench, accepted, lines, manifest, tasks},
    postgres::{PgStore, schema},
};

/// A store in a separate database.
struct InDatabase {
    url: String,
    store: Option<PgStore>,
}

impl InDatabase {
    fn new(url: String) -> Self {
        Self { store: Some(open(&url)), url }
    }
}

fn open(url: &str) -> PgStore {
    PgStore::open(url, "test", &mut |_| {}).unwrap()
}

impl Bench for InDatabase {
    type Store = PgStore;

    fn store(&mut self) -> &mut PgStore {
        self.store.as_mut().unwrap()
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(open(&self.url));
    }
}

#[test]
fn a_database_is_a_store() {
    let Some(server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    let made = Cell::new(0);
    conformance::suite(|| {
        made.set(made.get() + 1);
        InDatabase::new(server.database(&format!("queens{}", made.get())))
    });
}

#[test]
fn a_former_leader_cannot_write() {
    let Some(server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    let url = server.database("queens");
    let mut old = open(&url);
    old.create(&manifest(1), Recheck::Auto).unwrap();
    old.apply(&[accepted(0)]).unwrap();
    let secrets = old.secrets().unwrap();
    secrets.write("tokens.json", "[]").unwrap();
    let mut waited = Vec::new();
    // The old leader gave up, as at the end of its heartbeat.
    server.ask("queens", "UPDATE queens.leader SET leads = false");
    let mut new =
        PgStore::open(&url, "other", &mut |seen| waited.push(seen.leader.clone())).unwrap();
    assert_eq!(waited, []);
    assert!(new.term() > old.term());
    for tried in [
        old.apply(&[accepted(1)]),
        old.create(&manifest(2), Recheck::Auto),
        secrets.write("tokens.json", "[1]"),
    ] {
        let error = tried.unwrap_err();
        let own = matches!(&error, StoreError::LostLeadership { by } if by.contains("other leads"));
        assert!(own || matches!(error, StoreError::Poisoned(_)), "{error}");
    }
    new.apply(&[accepted(2)]).unwrap();
    assert_eq!(lines(&new, 1).len(), 2);
    assert_eq!(new.secrets().unwrap().read("tokens.json").unwrap().unwrap(), "[]");
    drop((old, new));
    assert_eq!(tasks(&mut open(&url), 1).len(), 2);
}

#[test]
fn a_standby_waits_for_the_leaders_heartbeat_to_stop() {
    let Some(server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    let url = server.database("queens");
    let first = open(&url);
    let leader = first.leader().clone();
    // The leader is silent from now on, as if its machine were gone.
    server.ask("queens", "ALTER TABLE queens.beat RENAME TO gone; CREATE TABLE queens.beat AS SELECT * FROM queens.gone; REVOKE ALL ON queens.gone FROM queens");
    server.ask(
        "queens",
        "CREATE RULE silent AS ON UPDATE TO queens.beat DO INSTEAD SELECT 1::bigint AS beats",
    );
    let mut waited = Vec::new();
    let second = PgStore::open(&url, "second", &mut |seen| waited.push(seen.clone())).unwrap();
    assert!(waited.len() > 1 && waited.iter().all(|seen| seen.leader == leader), "{waited:?}");
    // The first one is later than the only heartbeat, and there is no other.
    assert!(waited.iter().all(|seen| seen.heard == waited[0].heard), "{waited:?}");
    assert_eq!(second.leader().term, first.leader().term + 1);
}

#[test]
fn damage_is_found_and_rows_are_rebuilt() {
    let Some(server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    let damages = [
        (
            "UPDATE queens.lines SET line = replace(line, '\"count\":\"3\"', '\"count\":\"4\"')",
            "checksum",
        ),
        ("DELETE FROM queens.lines WHERE seq = 2", "sequence number"),
        ("DELETE FROM queens.lines WHERE seq = 3", "3 when"),
        (
            "UPDATE queens.runs SET manifest = replace(manifest, '\"n\":10', '\"n\":11')",
            "check hash",
        ),
    ];
    for (number, (damage, part)) in (0..).zip(damages) {
        let name = format!("queens{number}");
        let url = server.database(&name);
        let mut store = open(&url);
        store.create(&manifest(1), Recheck::Auto).unwrap();
        store.apply(&[accepted(0), accepted(1), accepted(2)]).unwrap();
        drop(store);
        server.ask(&name, damage);
        let error = PgStore::open(&url, "test", &mut |_| {}).err().expect("damage");
        let text = error.to_string();
        assert!(matches!(error, StoreError::Damaged { .. }), "{text}");
        assert!(text.contains(part), "{damage}: {text}");
    }
    // Rows are rebuilt, and those of other runs stay with their leases.
    let url = server.database("rows");
    let mut store = open(&url);
    for run in [1, 2] {
        store.create(&manifest(run), Recheck::Auto).unwrap();
    }
    let mut lease = conformance::leased(0, 1);
    if let Change::Lease { run, .. } = &mut lease {
        *run = RunId(2);
    }
    store.apply(&[accepted(0), accepted(1), lease]).unwrap();
    let before = [1, 2].map(|run| tasks(&mut store, run));
    drop(store);
    for damage in [
        "DELETE FROM queens.rows WHERE task = 1",
        "UPDATE queens.rows SET content = 'x' WHERE task = 1",
    ] {
        server.ask("rows", damage);
        let mut store = open(&url);
        assert_eq!([1, 2].map(|run| tasks(&mut store, run)), before);
    }
}

#[test]
fn older_tables_are_migrated_and_newer_ones_refused() {
    let Some(server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    let url = server.database("older");
    let older = format!(
        "{} {} UPDATE queens.schema_version SET version = 1",
        schema::BEGIN_SCHEMA,
        schema::MIGRATIONS[0]
    );
    server.ask("older", &older);
    let mut store = open(&url);
    store.create(&manifest(1), Recheck::Auto).unwrap();
    let version = "SELECT version FROM queens.schema_version";
    assert_eq!(server.ask("older", version), schema::MIGRATIONS.len().to_string());
    drop(store);
    assert_eq!(open(&url).runs().unwrap().len(), 1);
    server.ask("older", "UPDATE queens.schema_version SET version = 99");
    let error = PgStore::open(&url, "test", &mut |_| {}).err().expect("newer");
    assert!(error.to_string().contains("version 99"), "{error}");
    let before = server.ask("older", "SELECT term FROM queens.leader");
    assert_eq!(before, "2", "a coordinator that cannot read the tables does not lead");
}

#[test]
fn a_group_is_committed_once_through_every_outage() {
    let Some(mut server) = Postgres::start(&[]) else {
        return;
    };
    let url = server.database("queens");
    let mut store = open(&url);
    store.create(&manifest(1), Recheck::Auto).unwrap();
    store.apply(&[accepted(0)]).unwrap();
    server.kill();
    server.restart();
    store.apply(&[accepted(1)]).unwrap();
    // The answer is lost: repeating the commit has no effect.
    store.medium.commits -= 1;
    store.medium.link.lock().quiet = true;
    store.apply(&[Change::State { run: RunId(1), state: crate::RunState::Paused }]).unwrap();
    assert_eq!(store.runs().unwrap()[0].state, crate::RunState::Paused);
    server.ask("queens", "ALTER DATABASE queens SET default_transaction_read_only = on");
    server.kill();
    server.restart();
    store.medium.link.lock().retry_timeout = std::time::Duration::from_secs(2);
    let error = store.apply(&[accepted(2)]).unwrap_err().to_string();
    assert!(error.contains("read-only"), "{error}");
    drop(store);
    let refused = PgStore::open(&url, "test", &mut |_| {}).err().expect("a refusal").to_string();
    assert!(refused.contains("as a replica is; give the address of the primary"), "{refused}");
    server.ask("postgres", "ALTER DATABASE queens RESET default_transaction_read_only");
    let mut store = open(&url);
    assert_eq!(lines(&store, 1).len(), 2);
    store.apply(&[accepted(2)]).unwrap();
    assert_eq!(lines(&store, 1).len(), 3);
}

#[test]
fn a_call_is_repeated_after_a_limit_of_the_server() {
    let Some(server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    let store = open(&server.database("queens"));
    // The limits of idle sessions and of transactions.
    for code in ["57P05", "25P04"] {
        server.ask("queens", &format!("CREATE SEQUENCE calls_{code}"));
        // An error does not undo a step of a sequence.
        let once = format!(
            "DO $$ BEGIN IF nextval('calls_{code}') = 1 THEN \
             RAISE EXCEPTION USING ERRCODE = '{code}'; END IF; END $$"
        );
        let mut link = store.medium.link.lock();
        let done = link.call(async |session| session.client.batch_execute(&once).await);
        assert!(matches!(done, Ok(Some(()))), "{code}: {done:?}");
    }
}

#[test]
fn a_password_with_a_question_mark_hides_no_option() {
    let url = "postgres://lab:hu?sh@db/q?sslmode=maybe";
    let error = PgStore::open(url, "test", &mut |_| {}).err().expect("an error").to_string();
    assert!(error.contains("postgres://lab@db/q: invalid sslmode 'maybe'"), "{error}");
}

#[test]
fn permanent_errors_are_one_line() {
    let Some(server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    server.database("queens");
    let good = server.tcp_url("queens");
    for (url, part) in [
        (good.replace("hush-hush", "wrong"), "password authentication failed"),
        (server.tcp_url("nowhere"), "create it first"),
        (format!("{good}?sslmode=require"), "TLS"),
        (format!("{good}?sslmode=maybe"), "sslmode 'maybe'"),
        (format!("{good}?nonsense=1"), "nonsense"),
    ] {
        let error = PgStore::open(&url, "test", &mut |_| {}).err().expect(part).to_string();
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("hush") && !error.contains("wrong@"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    drop(open(&good));
}

/// Returns an authority's certificate, and a certificate and key for a server or user `name`.
fn certified(name: &str) -> (String, String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let own_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let own = params.signed_by(&own_key, &issuer).unwrap();
    (authority, own.pem(), own_key.serialize_pem())
}

#[test]
fn a_server_is_trusted_by_its_certificate_only() {
    let Some(mut server) = Postgres::start(&["fsync=off"]) else {
        return;
    };
    server.database("queens");
    server.database("by_certificate");
    let files = tempfile::tempdir().unwrap();
    let at = |name: &str| files.path().join(name);
    let (authority, certificate, key) = certified("localhost");
    for (name, text) in [("server.crt", &certificate), ("server.key", &key)] {
        crate::directory::files::write_private(&at(name), text.as_bytes()).unwrap();
    }
    let (users, user_certificate, user_key) = certified("queens");
    for (name, text) in [("user.crt", &user_certificate), ("user.key", &user_key)] {
        crate::directory::files::write_private(&at(name), text.as_bytes()).unwrap();
    }
    fs::write(at("users.pem"), users).unwrap();
    let access = "local all all trust\nhostssl queens all all scram-sha-256\n\
                  hostssl by_certificate all all cert\n";
    fs::write(at("hba"), access).unwrap();
    fs::write(at("authority.pem"), authority).unwrap();
    fs::write(at("other.pem"), certified("localhost").0).unwrap();
    server.own(files.path());
    for (setting, value) in [
        ("ssl_cert_file", at("server.crt").display().to_string()),
        ("ssl_key_file", at("server.key").display().to_string()),
        ("ssl_ca_file", at("users.pem").display().to_string()),
        ("hba_file", at("hba").display().to_string()),
        ("ssl", "on".to_owned()),
    ] {
        let done = format!("ALTER SYSTEM SET {setting} = '{value}'");
        server.ask("postgres", &done);
    }
    server.kill();
    server.restart();
    let url = |host: &str, roots: &str| {
        let plain = server.tcp_url("queens");
        let roots = at(roots);
        let named = plain.replace("127.0.0.1", host);
        format!("{named}?sslmode=require&sslrootcert={}", roots.display())
    };
    let mut store = open(&url("localhost", "authority.pem"));
    store.create(&manifest(1), Recheck::Auto).unwrap();
    store.apply(&[accepted(1)]).unwrap();
    let how = "SELECT DISTINCT ssl, version FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'queens coordinator'";
    assert_eq!(server.ask("queens", how), "t|TLSv1.3");
    drop(store);
    // Another authority, and a name that the certificate does not contain.
    for (host, roots) in [("localhost", "other.pem"), ("127.0.0.1", "authority.pem")] {
        let opened = PgStore::open(&url(host, roots), "test", &mut |_| {});
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("certificate"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    // A user is identified by a certificate instead of a password.
    let user = url("localhost", "authority.pem").replace("/queens?", "/by_certificate?");
    let with = |name: &str| {
        let [certificate, key] = ["crt", "key"].map(|kind| at(&format!("{name}.{kind}")));
        format!("{user}&sslcert={}&sslkey={}", certificate.display(), key.display())
    };
    drop(open(&with("user")));
    for (url, part) in [
        (user.clone(), "certificate"),
        (with("server"), "certificate"),
        (user + "&sslcert=x", "sslcert and sslkey need each other"),
    ] {
        let error = PgStore::open(&url, "test", &mut |_| {}).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}
