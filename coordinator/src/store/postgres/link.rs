//! A connection to the database that comes back: every call has a time limit, is made again after
//! whatever passes, and says in one line why it has to wait.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs, io,
    net::IpAddr,
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
    self, ClientConfig, RootCertStore,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject as _},
    },
};

use super::super::{StoreError, StoreUrl};

/// A connection that takes longer is none.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A call that takes longer is made again on another connection: this one's database is not there.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// After so long a call is said to be slow.
const SLOW: Duration = Duration::from_secs(3);

/// The time between two attempts, first and longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// How long a coordinator that serves waits for its database; then it ends, and whoever looks after
/// its process starts it again.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// How long one that starts does: its address may be wrong.
pub(super) const FIRST_PATIENCE: Duration = Duration::from_secs(20);

/// Another coordinator leads.
const REPLACED: &str = "QN001";
/// What is to be kept was kept by an attempt whose answer was lost.
const KEPT_BEFORE: &str = "QN002";

/// Where a database is and how it is reached.
#[derive(Clone)]
pub(super) struct Server {
    /// For people: without the password.
    pub(super) place: String,
    config: Config,
    tls: Option<MakeRustlsConnect>,
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

/// The database, for one thread that may block and is no thread of an async runtime.
pub(super) struct Link {
    pub(super) server: Server,
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
    session: Option<Session>,
    pub(super) patience: Duration,
    /// Of waiting nothing is said: somebody else says it.
    pub(super) quiet: bool,
}

/// One connection, as long as it lasts.
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

    /// All steps or none, in one round trip: a process that stops in the middle of it has sent all
    /// of it, or leaves a transaction behind that the database soon ends.
    pub(super) async fn transact(&self, steps: &[Step]) -> Result<Vec<u64>, Error> {
        let mut statements = Vec::new();
        for step in steps {
            statements.push(self.prepared(step.sql).await?);
        }
        let values: Vec<Vec<&(dyn ToSql + Sync)>> = steps
            .iter()
            .map(|step| step.values.iter().map(|value| &**value).collect())
            .collect();
        let work = statements
            .iter()
            .zip(&values)
            .map(|(statement, values)| self.client.execute(statement, values));
        // Each is sent when it is polled first, which is in this order.
        let all = async { join_all(work).await.into_iter().collect::<Result<_, _>>() };
        let (begun, done, ended) = tokio::join!(
            biased;
            self.client.batch_execute("BEGIN"),
            all,
            // Of a transaction that failed it is the end as well.
            self.client.batch_execute("COMMIT"),
        );
        begun?;
        let done = done?;
        ended?;
        Ok(done)
    }
}

/// What follows from an error.
enum Verdict {
    /// It passes: wait, and do it again.
    Passes(String),
    /// What was to be done is done.
    Done,
    /// Another coordinator leads.
    Replaced(String),
    /// Nothing but a person helps.
    Stays(String),
}

impl Server {
    /// The database of a URL, which is a secret. Beyond loopback it is asked for TLS, and for a
    /// certificate of this name by an authority that the system (or `sslrootcert`) trusts.
    pub(super) fn of(url: &str) -> Result<Self, StoreError> {
        let place = url
            .parse()
            .unwrap_or_else(|never: std::convert::Infallible| match never {});
        let place: String = StoreUrl::to_string(&place);
        let bad = |what: String| StoreError::Server {
            place: place.clone(),
            what,
            advice: "check the store's address",
        };
        let Asked { url, mode, roots } = Asked::of(url);
        let mut config: Config = url.parse().map_err(|error| bad(said(&error)))?;
        config
            .application_name("queens coordinator")
            .connect_timeout(CONNECT_LIMIT)
            .keepalives_idle(Duration::from_secs(10))
            .tcp_user_timeout(Duration::from_secs(20));
        let near = config.get_hosts().iter().all(is_near);
        let plain = match mode.as_deref() {
            None => near,
            Some("disable") => true,
            Some("prefer" | "allow") if near => true,
            // What a stranger in between could turn off is no protection.
            Some("prefer" | "allow" | "require" | "verify-ca" | "verify-full") => false,
            Some(other) => return Err(bad(format!("there is no sslmode '{other}'"))),
        };
        if plain && !near {
            tracing::warn!("{place}: sslmode=disable: passwords and results travel readable");
        }
        let tls = match plain {
            true => None,
            false => {
                let config = tls(roots.as_deref()).map_err(|error| bad(error.to_string()))?;
                Some(MakeRustlsConnect::new(config))
            }
        };
        config.ssl_mode(match plain {
            true => SslMode::Disable,
            false => SslMode::Require,
        });
        Ok(Self { place, config, tls })
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
        // What was committed survives a power cut, whatever this user's default is; and what a
        // process leaves behind that was stopped does not stand in the way of the next one.
        client
            .batch_execute(
                "SET synchronous_commit = on; SET idle_in_transaction_session_timeout = 3000; \
                 SET client_min_messages = error",
            )
            .await?;
        Ok(Session {
            client,
            prepared: RefCell::default(),
        })
    }

    pub(super) fn failed(&self, what: String, advice: &'static str) -> StoreError {
        StoreError::Server {
            place: self.place.clone(),
            what,
            advice,
        }
    }
}

/// The part of a URL that is this program's matter, taken out of it.
struct Asked {
    url: String,
    mode: Option<String>,
    roots: Option<String>,
}

impl Asked {
    fn of(url: &str) -> Self {
        let (start, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut others) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_owned()),
                Some(("sslrootcert", value)) => roots = Some(value.replace("%2F", "/")),
                Some(_) | None => others.push(pair),
            }
        }
        let url = match others.is_empty() {
            true => start.to_owned(),
            false => format!("{start}?{}", others.join("&")),
        };
        Self { url, mode, roots }
    }
}

fn is_near(host: &Host) -> bool {
    match host {
        #[cfg(unix)]
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
    }
}

/// Why nobody is trusted to say which database is the right one.
#[derive(Debug, thiserror::Error)]
enum NoRoots {
    #[error("this system trusts no authority: name one with sslrootcert=FILE")]
    System,
    #[error("sslrootcert {file}: {why}")]
    File { file: String, why: BadRoots },
}

/// What is wrong with a file of authorities.
#[derive(Debug, thiserror::Error)]
enum BadRoots {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Pem(#[from] pem::Error),
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
    #[error("it holds no certificate")]
    Empty,
}

fn tls(roots: Option<&str>) -> Result<ClientConfig, NoRoots> {
    proto::door::install_crypto();
    let Some(file) = roots else {
        let mut store = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        return match store.is_empty() {
            true => Err(NoRoots::System),
            false => Ok(config(store)),
        };
    };
    let store = read_roots(file).map_err(|why| NoRoots::File {
        file: file.to_owned(),
        why,
    })?;
    Ok(config(store))
}

fn read_roots(file: &str) -> Result<RootCertStore, BadRoots> {
    let pem = fs::read(file)?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        store.add(certificate?)?;
    }
    match store.is_empty() {
        true => Err(BadRoots::Empty),
        false => Ok(store),
    }
}

fn config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

impl Link {
    pub(super) fn new(server: Server, patience: Duration) -> Result<Self, StoreError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                server.failed(error.to_string(), "remove the cause and start again")
            })?;
        Ok(Self {
            server,
            runtime: Some(runtime),
            session: None,
            patience,
            quiet: false,
        })
    }

    /// Does something that may be done twice; waits while the database cannot.
    pub(super) fn call<T>(
        &mut self,
        work: impl AsyncFn(&Session) -> Result<T, Error>,
    ) -> Result<Option<T>, StoreError> {
        let started = Instant::now();
        let mut pause = PAUSES[0];
        let mut told = String::new();
        loop {
            let why = match self.attempt(&work) {
                Ok(done) => {
                    if !told.is_empty() {
                        tracing::info!("{}: the database answers again", self.server.place);
                    }
                    return Ok(Some(done));
                }
                Err(Verdict::Done) => return Ok(None),
                Err(Verdict::Replaced(by)) => return Err(StoreError::Replaced { by }),
                Err(Verdict::Stays(what)) => {
                    let advice = "remove the cause and start again: nothing is lost";
                    return Err(self.server.failed(what, advice));
                }
                Err(Verdict::Passes(why)) => why,
            };
            if started.elapsed() > self.patience {
                let advice = "remove the cause and start again: nothing is lost";
                return Err(self.server.failed(why, advice));
            }
            if why != told && !self.quiet {
                tracing::warn!(
                    "{}: {why}; waiting for it, results wait with their workers",
                    self.server.place
                );
            }
            told = why;
            self.runtime().block_on(async { sleep(pause).await });
            pause = PAUSES[1].min(pause * 2);
        }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the end")
    }

    fn attempt<T>(
        &mut self,
        work: &impl AsyncFn(&Session) -> Result<T, Error>,
    ) -> Result<T, Verdict> {
        let place = &self.server.place;
        if self
            .session
            .as_ref()
            .is_none_or(|session| session.client.is_closed())
        {
            // A dropped session's connection ends by itself.
            self.session = None;
            let server = &self.server;
            let made = self
                .runtime()
                .block_on(async { timeout(CONNECT_LIMIT, server.session()).await });
            let made =
                made.map_err(|_| Verdict::Passes("the database does not answer".to_owned()))?;
            self.session = Some(made.map_err(|error| verdict(&error))?);
        }
        let session = self.session.as_ref().expect("it was just made");
        let quiet = self.quiet;
        let done = self.runtime().block_on(async {
            let work = work(session);
            pin!(work);
            match timeout(SLOW, &mut work).await {
                Ok(done) => Some(done),
                Err(_) => {
                    if !quiet {
                        tracing::warn!(
                            "{place}: the database is slow: no answer for {} s",
                            SLOW.as_secs()
                        );
                    }
                    timeout(CALL_LIMIT, work).await.ok()
                }
            }
        });
        match done {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => Err(verdict(&error)),
            None => {
                // What was sent may be done all the same: the next attempt finds that out.
                self.session = None;
                Err(Verdict::Passes("the database does not answer".to_owned()))
            }
        }
    }
}

impl Drop for Link {
    /// Also where async tasks run, which may not wait for a runtime's end.
    fn drop(&mut self) {
        self.session = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What an error says, without its chain of types.
fn said(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}

fn verdict(error: &Error) -> Verdict {
    let said = said(error);
    let Some(code) = error.code() else {
        let io =
            std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
        // A certificate that is not trusted stays so; everything else of a network passes.
        return match io.map(io::Error::kind) {
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
                Verdict::Stays(format!("no TLS with the database: {said}"))
            }
            _ if error.is_closed() || io.is_some() => {
                Verdict::Passes(format!("the database cannot be reached ({said})"))
            }
            _ if said.contains("error performing TLS handshake") => {
                Verdict::Stays(format!("no TLS with the database: {said}"))
            }
            _ if said.contains("connecting to server") || said.contains("communicating") => {
                Verdict::Passes(format!("the database cannot be reached ({said})"))
            }
            _ => Verdict::Stays(said),
        };
    };
    let class = &code.code()[..2];
    match (code.code(), class) {
        (REPLACED, _) => Verdict::Replaced(said),
        (KEPT_BEFORE, _) => Verdict::Done,
        ("57P01" | "57P02" | "57P03", _) | (_, "08") => {
            Verdict::Passes(format!("the database is being started or stopped ({said})"))
        }
        (_, _) if *code == SqlState::DISK_FULL => Verdict::Passes(format!(
            "the database's disk is full ({said}): free space there"
        )),
        (_, _) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Verdict::Passes(format!(
            "the database is read-only ({said}): name the one that may be written"
        )),
        (_, "53" | "58" | "40" | "55") | ("57014" | "25P03", _) => {
            Verdict::Passes(format!("the database cannot do it now ({said})"))
        }
        (_, "28") => Verdict::Stays(format!("the database lets nobody in like this ({said})")),
        ("3D000", _) => Verdict::Stays(format!("{said}: create it first (createdb)")),
        ("42501", _) => Verdict::Stays(format!(
            "{said}: the user must own the schema 'queens' or may create it"
        )),
        (_, _) => Verdict::Stays(format!("{said} ({})", code.code())),
    }
}
