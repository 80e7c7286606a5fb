//! A connection to the database that reconnects.
//! Every call has a time limit, is retried after temporary failures, and logs the reason in one line.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs, io,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::{
    pin,
    runtime::{self, Runtime},
    time::{sleep, timeout},
};
use tokio_postgres::{
    Client, Config, Error, NoTls, Row, Statement,
    config::{Host, SslMode},
    error::SqlState,
    types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::password_file;
use crate::{
    Outages, StoreError, StoreUrl,
    address::{others_can_read, split_query},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a slow call has until it is retried on another connection.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The duration after which a call is logged as slow.
const SLOW: Duration = Duration::from_secs(3);

/// The duration of a call after which the database counts as away.
const AWAY: Duration = Duration::from_secs(1);

/// The first and the longest pause between two attempts.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// The time that a serving coordinator waits for its database before it exits.
/// Its service manager then restarts it.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_secs(600);

/// The time that a starting coordinator waits: the database's URL may be wrong.
pub(super) const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);

/// SQL state: another coordinator leads.
const REPLACED: &str = "QN001";
/// SQL state: an earlier attempt, whose answer was lost, has committed.
const ALREADY_COMMITTED: &str = "QN002";

/// A database's address and connection settings.
#[derive(Clone)]
pub(super) struct Server {
    /// The address without the password, for messages.
    pub(super) place: String,
    config: Config,
    tls: Option<MakeRustlsConnect>,
    pub(super) outages: Outages,
}

/// One statement of a transaction.
pub(super) struct Step {
    sql: &'static str,
    values: Vec<Box<dyn ToSql + Sync>>,
}

impl Step {
    pub(super) fn new(sql: &'static str, values: Vec<Box<dyn ToSql + Sync>>) -> Self {
        Self { sql, values }
    }
}

/// A connection for a thread that may block and is not part of an async runtime.
pub(super) struct DbConnection {
    pub(super) server: Server,
    /// `None` only while the connection is dropped.
    runtime: Option<Runtime>,
    session: Option<Session>,
    pub(super) retry_timeout: Duration,
    /// Whether to log no retries, since another connection logs them.
    pub(super) quiet: bool,
    /// The connection's number in the outages.
    number: usize,
}

static LINKS: AtomicUsize = AtomicUsize::new(0);

/// One connection, until it fails.
pub(super) struct Session {
    pub(super) client: Client,
    prepared: RefCell<HashMap<&'static str, Statement>>,
}

impl Session {
    async fn prepared(&self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.borrow_mut().insert(sql, statement.clone());
        Ok(statement)
    }

    pub(super) async fn query(
        &self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let statement = self.prepared(sql).await?;
        self.client.query(&statement, values).await
    }

    /// Commits all steps or none, in one round trip.
    /// If the process stops in between, it has sent everything, or the open transaction soon times out.
    pub(super) async fn transact(&self, steps: &[Step]) -> Result<Vec<u64>, Error> {
        let mut statements = Vec::new();
        for step in steps {
            statements.push(self.prepared(step.sql).await?);
        }
        let values: Vec<Vec<&(dyn ToSql + Sync)>> =
            steps.iter().map(|step| step.values.iter().map(|value| &**value).collect()).collect();
        let work = statements
            .iter()
            .zip(&values)
            .map(|(statement, values)| self.client.execute(statement, values));
        // Each statement is sent at its first poll, in this order.
        let all = async { join_all(work).await.into_iter().collect::<Result<_, _>>() };
        let (begun, done, ended) = tokio::join!(
            biased;
            self.client.batch_execute("BEGIN"),
            all,
            // Also ends a transaction that failed.
            self.client.batch_execute("COMMIT"),
        );
        begun?;
        let done = done?;
        ended?;
        Ok(done)
    }
}

/// The reaction to an error.
enum Verdict {
    /// Wait and retry.
    Retry(String),
    AlreadyCommitted,
    /// Another coordinator leads.
    Replaced(String),
    /// Report it to the operator.
    Fail(String),
}

impl Server {
    /// Parses a URL, which is a secret.
    /// Beyond loopback, unless `sslmode=disable`, the database must use TLS with a certificate for its host
    /// name from a CA of the system or of `sslrootcert`.
    pub(super) fn of(url: &str) -> Result<Self, StoreError> {
        let place = StoreUrl::from(url).to_string();
        let bad = |what: String| StoreError::unusable(&place, what, "check the store's address");
        let (url, options) = split_tls_options(url);
        let mut config: Config = url.parse().map_err(|error| bad(describe(&error)))?;
        if config.get_password().is_none()
            && let Some(password) = password_file::password(&config)
        {
            config.password(password);
        }
        config
            .application_name("queens coordinator")
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(Duration::from_secs(10))
            .tcp_user_timeout(Duration::from_secs(20));
        let all_local = config.get_hosts().iter().all(is_local);
        let plain = match options.get("sslmode").map(String::as_str) {
            None => all_local,
            Some("disable") => true,
            Some("prefer" | "allow") if all_local => true,
            // An attacker could turn off TLS that is only preferred.
            Some("prefer" | "allow" | "require" | "verify-ca" | "verify-full") => false,
            Some(other) => return Err(bad(format!("invalid sslmode '{other}'"))),
        };
        if plain && !all_local {
            tracing::warn!("{place}: sslmode=disable: the connection is not encrypted");
        }
        if plain {
            config.ssl_mode(SslMode::Disable);
            return Ok(Self { place, config, tls: None, outages: Outages::default() });
        }
        config.ssl_mode(SslMode::Require);
        let tls = MakeRustlsConnect::new(tls(&options).map_err(bad)?);
        Ok(Self { place, config, tls: Some(tls), outages: Outages::default() })
    }

    async fn connect(&self) -> Result<Client, Error> {
        match &self.tls {
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(connection);
                Ok(client)
            }
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(connection);
                Ok(client)
            }
        }
    }

    async fn session(&self) -> Result<Session, Error> {
        let client = self.connect().await?;
        // A commit must survive a power cut, whatever the user's default is; and a transaction left by
        // a stopped process must not block the next process.
        client
            .batch_execute(
                "SET synchronous_commit = on; SET idle_in_transaction_session_timeout = 3000; \
                 SET client_min_messages = error",
            )
            .await?;
        Ok(Session { client, prepared: RefCell::default() })
    }

    pub(super) fn failed(&self, what: impl Into<String>, advice: &'static str) -> StoreError {
        StoreError::unusable(&self.place, what, advice)
    }

    pub(super) fn without_leader(&self) -> StoreError {
        self.failed("its table queens.leader is empty", "restore it from a backup")
    }
}

type TlsOptions = BTreeMap<&'static str, String>;

/// Separates a URL from the values of its options of TLS, which are libpq's.
fn split_tls_options(url: &str) -> (String, TlsOptions) {
    const NAMES: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];
    let (start, query) = split_query(url);
    let (mut options, mut others) = (TlsOptions::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match NAMES.into_iter().find(|known| *known == name) {
            Some(name) => drop(options.insert(name, value.replace("%2F", "/"))),
            None => others.push(pair),
        }
    }
    let url = match others.is_empty() {
        true => start.to_owned(),
        false => format!("{start}?{}", others.join("&")),
    };
    (url, options)
}

fn is_local(host: &Host) -> bool {
    match host {
        #[cfg(unix)]
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
    }
}

fn tls(options: &TlsOptions) -> Result<ClientConfig, String> {
    proto::connect::install_crypto();
    let mut store = RootCertStore::empty();
    match options.get("sslrootcert") {
        None => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err("this system trusts no CA: give one with sslrootcert=FILE".into());
            }
        }
        Some(file) => {
            read_roots(&mut store, file).map_err(|error| format!("sslrootcert {file}: {error}"))?
        }
    }
    let config = ClientConfig::builder().with_root_certificates(store);
    let (certificate, key) = match (options.get("sslcert"), options.get("sslkey")) {
        (None, None) => return Ok(config.with_no_client_auth()),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) | (None, Some(_)) => {
            return Err("sslcert and sslkey need each other".into());
        }
    };
    if others_can_read(key) {
        return Err(format!("every user of this machine can read sslkey {key}: chmod o= {key}"));
    }
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.map_err(|error| format!("sslcert {certificate}: {error}"))?;
    let key =
        PrivateKeyDer::from_pem_file(key).map_err(|error| format!("sslkey {key}: {error}"))?;
    config
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("sslcert {certificate}: {error}"))
}

fn read_roots(store: &mut RootCertStore, file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let pem = fs::read(file)?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        store.add(certificate?)?;
    }
    if store.is_empty() { Err("it holds no certificate".into()) } else { Ok(()) }
}

impl DbConnection {
    pub(super) fn new(server: Server, retry_timeout: Duration) -> Result<Self, StoreError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| server.failed(error.to_string(), "fix the cause and start again"))?;
        let number = LINKS.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            server,
            runtime: Some(runtime),
            session: None,
            retry_timeout,
            quiet: false,
            number,
        })
    }

    /// Runs idempotent work; retries while the database is unavailable, which is an outage.
    /// Returns `None` if an earlier attempt had committed the work.
    pub(super) fn call<T>(
        &mut self,
        work: impl AsyncFn(&Session) -> Result<T, Error>,
    ) -> Result<Option<T>, StoreError> {
        let done = self.retry(work);
        self.server.outages.end(self.number);
        done
    }

    fn retry<T>(
        &mut self,
        work: impl AsyncFn(&Session) -> Result<T, Error>,
    ) -> Result<Option<T>, StoreError> {
        let started = Instant::now();
        let mut pause = PAUSES[0];
        let mut logged = String::new();
        loop {
            let why = match self.attempt(&work) {
                Ok(done) => {
                    if !logged.is_empty() {
                        tracing::info!("{}: the database answers again", self.server.place);
                    }
                    return Ok(Some(done));
                }
                Err(Verdict::AlreadyCommitted) => return Ok(None),
                Err(Verdict::Replaced(by)) => return Err(StoreError::LostLeadership { by }),
                Err(Verdict::Fail(what)) => {
                    let advice = "fix the cause and start again: nothing is lost";
                    return Err(self.server.failed(what, advice));
                }
                Err(Verdict::Retry(why)) => why,
            };
            self.server.outages.begin(self.number, why.clone());
            if started.elapsed() > self.retry_timeout {
                let advice = "fix the cause and start again: nothing is lost";
                return Err(self.server.failed(why, advice));
            }
            if why != logged && !self.quiet {
                tracing::warn!(
                    "{}: {why}; retrying, while workers keep their results",
                    self.server.place
                );
            }
            logged = why;
            self.runtime().block_on(async { sleep(pause).await });
            pause = PAUSES[1].min(pause * 2);
        }
    }

    pub(super) fn query(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        Ok(self.call(async |session| session.query(sql, values).await)?.unwrap_or_default())
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("present until it is dropped")
    }

    fn attempt<T>(
        &mut self,
        work: &impl AsyncFn(&Session) -> Result<T, Error>,
    ) -> Result<T, Verdict> {
        let (server, number) = (&self.server, self.number);
        let place = &server.place;
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            // Dropping the old session closes its connection.
            self.session = None;
            let session =
                self.runtime().block_on(async { timeout(CONNECT_TIMEOUT, server.session()).await });
            let session =
                session.map_err(|_| Verdict::Retry("the database does not answer".to_owned()))?;
            self.session = Some(session.map_err(|error| verdict(&error))?);
        }
        let session = self.session.as_ref().expect("just connected");
        let quiet = self.quiet;
        let done = self.runtime().block_on(async {
            let work = work(session);
            pin!(work);
            if let Ok(done) = timeout(AWAY, &mut work).await {
                return Some(done);
            }
            server.outages.begin(number, "the database does not answer".to_owned());
            match timeout(SLOW - AWAY, &mut work).await {
                Ok(done) => Some(done),
                Err(_) => {
                    if !quiet {
                        tracing::warn!(
                            "{place}: the database is slow: no answer for {} s",
                            SLOW.as_secs()
                        );
                    }
                    timeout(CALL_TIMEOUT, work).await.ok()
                }
            }
        });
        match done {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => Err(verdict(&error)),
            None => {
                // The work may have been committed; the next attempt detects that.
                self.session = None;
                Err(Verdict::Retry("the database does not answer".to_owned()))
            }
        }
    }
}

impl Drop for DbConnection {
    /// Stops the runtime without waiting, which is forbidden in async tasks.
    fn drop(&mut self) {
        self.session = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Formats the database's message, or an error with its causes, in one line.
fn describe(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = next.source();
    }
    text
}

fn verdict(error: &Error) -> Verdict {
    let text = describe(error);
    let Some(code) = error.code() else {
        let io =
            std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
        // An untrusted certificate remains untrusted; other network errors are temporary.
        return match io.map(io::Error::kind) {
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
                Verdict::Fail(format!("cannot establish TLS with the database: {text}"))
            }
            _ if error.is_closed() || io.is_some() => {
                Verdict::Retry(format!("the database cannot be reached ({text})"))
            }
            _ if text.contains("error performing TLS handshake") => {
                Verdict::Fail(format!("cannot establish TLS with the database: {text}"))
            }
            _ if text.contains("connecting to server") || text.contains("communicating") => {
                Verdict::Retry(format!("the database cannot be reached ({text})"))
            }
            _ => Verdict::Fail(text),
        };
    };
    let class = &code.code()[..2];
    match (code.code(), class) {
        (REPLACED, _) => Verdict::Replaced(text),
        (ALREADY_COMMITTED, _) => Verdict::AlreadyCommitted,
        ("57P01" | "57P02" | "57P03", _) | (_, "08") => {
            Verdict::Retry(format!("the database is being started or stopped ({text})"))
        }
        (_, _) if *code == SqlState::DISK_FULL => {
            Verdict::Retry(format!("the database's disk is full ({text}): free space there"))
        }
        (_, _) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Verdict::Retry(format!(
            "the database is read-only ({text}): give the address of the primary server"
        )),
        // The last ones are limits that the server sets to idle sessions and to transactions.
        (_, "53" | "58" | "40" | "55") | ("57014" | "25P03" | "25P04" | "57P05", _) => {
            Verdict::Retry(format!("the database cannot execute the call now ({text})"))
        }
        (_, "28") => Verdict::Fail(format!("the database refuses the login ({text})")),
        ("42P01" | "3F000", _) => Verdict::Fail(format!(
            "the database holds no runs ({text}): a coordinator with this --store creates its tables"
        )),
        ("3D000", _) => Verdict::Fail(format!("{text}: create it first (createdb)")),
        ("42501", _) => {
            Verdict::Fail(format!("{text}: the user must own or be able to create schema 'queens'"))
        }
        (_, _) => Verdict::Fail(format!("{text} ({})", code.code())),
    }
}
