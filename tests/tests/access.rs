//! Access control: the permissions of tokens, certificates and join strings,
//! and the errors of callers without them.

use std::{
    fs,
    io::Read as _,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use auth::{Access, Authenticator, CALLS, NewToken, PkiFiles, Role};
use kit::Port;
use proto::connect::{CaHash, CoordinatorEndpoint, JoinString, Token, TokenId, explain_tls};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use scheduler::Config;
use store::MemoryStore;
use tests::{
    cluster::{Cluster, SLOW, journal, listening},
    process::{End, Process, command, coordinator, queensctl, wait_until, worker},
    service::{Service, bind_port, find_join},
};
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;

/// A certificate authority for servers, workers and users, and its folder.
struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Creates an authority with its certificate `ca.pem` in a folder.
    fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.join("ca.pem"), certificate.pem()).expect("a file");
        Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) }
    }

    fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Signs a server's certificate for these names and addresses.
    fn server(&self, names: &[&str]) -> PkiFiles {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("server", params)
    }

    /// Signs a caller's certificate with this URI, valid in a range of days from now.
    fn caller(&self, file: &str, uri: &str, days: Range<i64>) -> PkiFiles {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("ASCII"))];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemTime::now();
        let at = |day: i64| {
            let span = Duration::from_hours(24 * day.unsigned_abs());
            if day < 0 { now - span } else { now + span }
        };
        params.not_before = at(days.start).into();
        params.not_after = at(days.end).into();
        self.sign(file, params)
    }

    fn sign(&self, file: &str, params: CertificateParams) -> PkiFiles {
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = PkiFiles {
            certificate: self.folder.join(format!("{file}.pem")),
            key: self.folder.join(format!("{file}.key")),
            client_ca: self.ca(),
        };
        fs::write(&files.certificate, signed.pem()).expect("a file");
        fs::write(&files.key, key.serialize_pem()).expect("a file");
        files
    }
}

/// Days of a valid certificate.
const VALID: Range<i64> = -1..30;

/// A coordinator that asks for certificates of `pki`.
struct Fixture {
    cluster: Cluster,
    pki: Pki,
}

/// Adds the coordinator's flags for its certificate and its authority.
fn add_server_flags(command: &mut Command, server: &PkiFiles) {
    command.arg("--tls-cert").arg(&server.certificate).arg("--tls-key").arg(&server.key);
    command.arg("--client-ca").arg(&server.client_ca);
}

impl Fixture {
    fn new() -> Self {
        let cluster = Cluster::new(&["--n", "12"]);
        let pki = Pki::new(&cluster.path("pki"));
        Self { cluster, pki }
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let mut command = self.cluster.command(arguments);
        add_server_flags(&mut command, &self.pki.server(&["localhost"]));
        listening(command)
    }

    /// Adds the flags of a caller that shows a certificate.
    fn add_caller_flags(&self, command: &mut Command, ca: &Pki, files: &PkiFiles) {
        let url = format!("https://{}", self.cluster.address().replace("127.0.0.1", "localhost"));
        command.args(["--coordinator", &url]).arg("--tls-ca").arg(ca.ca());
        command.arg("--tls-cert").arg(&files.certificate).arg("--tls-key").arg(&files.key);
    }

    fn queensctl(&self, files: &PkiFiles, arguments: &[&str]) -> End {
        let mut command = queensctl(arguments);
        self.add_caller_flags(&mut command, &self.pki, files);
        Process::run(command)
    }

    fn caller(&self, role: &str) -> PkiFiles {
        let uri = format!("spiffe://lab.example/queens/{role}/somebody");
        self.pki.caller(role, &uri, VALID)
    }
}

#[test]
fn a_certificate_admits_a_worker() {
    let fixture = Fixture::new();
    let coordinator = fixture.start(&["--exit-when-done", "--json"]);
    let mut worker = worker(&["--threads", "1", "--spool"]);
    worker.arg(fixture.cluster.path("spool"));
    fixture.add_caller_flags(&mut worker, &fixture.pki, &fixture.caller("worker"));
    let worker = Process::start(worker);
    assert_eq!(coordinator.end().json()["solutions"], "14200");
    drop(worker);
}

#[test]
fn a_local_run_needs_no_certificate() {
    let fixture = Fixture::new();
    let coordinator = fixture.start(&["--local", "--threads", "1"]);
    coordinator.end().ok().prints(&["14,200 solutions"]);
}

#[test]
fn the_name_in_a_certificate_gives_the_role() {
    let fixture = Fixture::new();
    let _coordinator = fixture.start(&[]);
    let [operator, viewer] = ["operator", "viewer"].map(|role| fixture.caller(role));
    fixture.queensctl(&viewer, &["runs"]).ok();
    let pause = fixture.queensctl(&viewer, &["pause", "last"]);
    pause.refused(1, &["certificate 'somebody' has role viewer"]);
    fixture.queensctl(&operator, &["pause", "last"]).ok();
    let tokens = fixture.queensctl(&operator, &["token", "list"]);
    tokens.refused(1, &["this coordinator has no tokens"]);
    let uri = "spiffe://lab.example/chess/operator/somebody";
    let nameless = fixture.pki.caller("nameless", uri, VALID);
    let runs = fixture.queensctl(&nameless, &["runs"]);
    runs.refused(1, &["exactly one subject alternative name with a role"]);
}

#[test]
fn callers_without_a_valid_certificate_get_the_reason() {
    let fixture = Fixture::new();
    let _coordinator = fixture.start(&[]);
    let plain = format!("http://{}", fixture.cluster.address());
    let plain = Process::run(queensctl(&["runs", "--coordinator", &plain]));
    plain.refused(1, &["requires a certificate"]);

    let good = fixture.caller("operator");
    let uri = "spiffe://lab.example/queens/operator/somebody";
    let old = fixture.pki.caller("old", uri, -30..-1);
    let nowhere = fixture.cluster.path("nowhere.pem");
    let others = Pki::new(&fixture.cluster.path("others"));
    for (files, code, part) in [
        (old.clone(), 2, "renew it"),
        (PkiFiles { key: old.key, ..good.clone() }, 2, "is not the key of"),
        (PkiFiles { certificate: nowhere, ..good.clone() }, 2, "nowhere.pem"),
        (PkiFiles { certificate: good.key.clone(), ..good.clone() }, 2, "contains no certificate"),
        (others.caller("foreign", uri, VALID), 1, "rejected the certificate of --tls-cert"),
    ] {
        fixture.queensctl(&files, &["runs"]).refused(code, &[part]);
    }
    let mut command = queensctl(&["runs"]);
    fixture.add_caller_flags(&mut command, &Pki::new(&fixture.cluster.path("elsewhere")), &good);
    Process::run(command).refused(1, &["this coordinator is not the one"]);
}

#[test]
fn a_coordinator_with_bad_files_writes_no_data() {
    let fixture = Fixture::new();
    let server = fixture.pki.server(&["localhost"]);
    let old = fixture.pki.caller("old", "spiffe://x/y", -30..-1);
    let nowhere = fixture.cluster.path("nowhere");
    for (files, part) in [
        (old.clone(), "renew it"),
        (PkiFiles { key: old.key, ..server.clone() }, "is not the key of"),
        (PkiFiles { key: nowhere.clone(), ..server.clone() }, "nowhere"),
        (PkiFiles { client_ca: nowhere, ..server }, "--client-ca"),
    ] {
        let mut command = fixture.cluster.command(&[]);
        add_server_flags(&mut command, &files);
        Process::run(command).refused(2, &[part]);
    }
    assert!(!fixture.cluster.data_dir().exists());
}

/// Runs `queensctl` with this join string.
fn joined(join: &str, arguments: &[&str]) -> End {
    Process::run(queensctl(arguments).env("QUEENS_JOIN", join))
}

/// Runs a program in a directory.
fn run_in(dir: &Path, program: &str, arguments: &[&str]) -> End {
    Process::run(command(program, arguments).current_dir(dir))
}

#[test]
fn a_token_permits_what_its_role_may_until_it_is_revoked() {
    let cluster = Cluster::public(&["--n", "12"]);
    let coordinator = cluster.start(&[]);
    let operator = coordinator.join_for("queensctl status");
    let worker = coordinator.join_for("worker");
    joined(&operator, &["runs"]).ok();
    joined(&worker, &["runs"]).refused(1, &["has role worker"]);

    let create = ["token", "create", "--role", "viewer", "--name", "screen", "--expires", "90d"];
    let created = joined(&operator, &create).ok().stdout;
    let viewer = created.strip_prefix("QUEENS_JOIN=").unwrap().split(' ').next().unwrap();
    joined(&operator, &create).refused(1, &["a token 'screen' exists"]);

    joined(viewer, &["status"]).ok();
    joined(viewer, &["pause", "last"]).refused(1, &["has role viewer"]);
    joined(viewer, &["token", "list"]).refused(1, &["has role viewer"]);

    joined(&operator, &["token", "list"]).ok().prints(&["screen"]);
    joined(&operator, &["token", "revoke", "screen"]).ok();
    joined(viewer, &["status"]).refused(1, &["was revoked"]);
    joined(&operator, &["token", "revoke", "screen"]).refused(1, &["no active token 'screen'"]);
}

#[test]
fn a_worker_keeps_its_identity_when_its_token_is_renewed() {
    let cluster = Cluster::public(&["--n", "12"]);
    let coordinator = cluster.start(&[]);
    let operator = coordinator.join_for("queensctl status");
    let count = |join: &str| {
        let spool = cluster.path("spool");
        let spool = spool.to_str().unwrap();
        let arguments = ["--threads", "1", "--spool", spool, "--idle-timeout", "1s"];
        Process::run(command("worker", &arguments).env("QUEENS_JOIN", join))
    };
    let join_of = |end: End| {
        let line = end.ok().stdout;
        line.strip_prefix("QUEENS_JOIN=").unwrap().split(' ').next().unwrap().to_owned()
    };
    let create = ["token", "create", "--role", "worker", "--name", "lab"];
    let first = join_of(joined(&operator, &create));
    count(&first).ok();
    let renewed = join_of(joined(&operator, &["token", "renew", "lab"]));
    joined(&first, &["status"]).refused(1, &["unknown token"]);
    joined(&operator, &["submit", "--n", "13"]).ok();
    count(&renewed).ok();
    let workers = joined(&operator, &["workers", "--json"]).ok().stdout;
    assert_eq!(workers.lines().count(), 1, "one identity: {workers}");
    joined(&operator, &["token", "renew", "none"]).refused(1, &["no active token 'none'"]);
}

#[test]
fn a_join_string_of_another_coordinator_is_refused() {
    let [here, other] = [(); 2].map(|()| Cluster::public(&["--n", "12"]));
    let _coordinators = [&here, &other].map(|cluster| cluster.start(&[]));
    let [ours, theirs] =
        [&here, &other].map(|cluster| find_join(&cluster.data_dir(), Role::Operator).unwrap());
    // The other coordinator's join string with this one's address, as if the coordinator had been set up
    // again; then only its token.
    for (ca, part) in
        [(theirs.ca(), "not the one that the join string names"), (ours.ca(), "unknown token")]
    {
        let moved = JoinString::new(vec![here.address()], ca, theirs.token().clone()).unwrap();
        joined(&moved.expose(), &["runs"]).refused(1, &[part]);
    }
}

/// Loopback is open to other users of the machine.
#[test]
fn loopback_needs_a_token_unless_the_coordinator_is_insecure() {
    for (flag, code) in [(&[][..], 1), (&["--insecure"], 0)] {
        let cluster = Cluster::public(&["--n", "12"]);
        let _coordinator = cluster.start(flag);
        let plain = ["--coordinator", &format!("http://{}", cluster.address())];
        let end = Process::run(queensctl(&["pause", "last"]).args(plain)).code(code);
        assert_eq!(end.stderr.contains("requires a token"), code == 1, "{end:#?}");
        let mut worker = worker(&["--spool"]);
        let worker = Process::start(worker.arg(cluster.path("spool")).args(plain));
        if code == 1 {
            worker.stderr_line("refuses this worker's calls (Unauthenticated");
        }
    }
}

/// Programs find a join string in their working directory, or through `--data-dir`.
/// They use TLS on loopback too, so that another program on the coordinator's port gets no token.
#[test]
fn programs_on_the_coordinators_machine_find_a_join_string() {
    let dir = tempfile::tempdir().unwrap();
    let port = Port::reserve();
    let listen = format!("127.0.0.1:{}", port.number());
    let serve = ["--n", "12", "--listen", &listen, "--no-http"];
    let coordinator = Process::start(coordinator(&serve).current_dir(&dir));
    let printed = coordinator.stderr_line("  worker --data-dir ");
    let data = printed.trim().strip_prefix("worker --data-dir ").unwrap();
    coordinator.stderr_line(&format!("listening on {listen}: "));
    let runs =
        |connection: &[&str]| run_in(dir.path(), "queensctl", &[&["runs"], connection].concat());
    for connection in [&[][..], &["--data-dir", data]] {
        runs(connection).ok().prints(&["running"]);
    }
    let worker = Process::start(worker(&["--threads", "1"]).current_dir(&dir));
    coordinator.stdout_line("14,200 solutions");
    drop(worker);
    drop(coordinator.kill());

    let other = TcpListener::bind(&listen).unwrap();
    let first_byte = thread::spawn(move || {
        let mut first = [0];
        other.accept().unwrap().0.read_exact(&mut first).unwrap();
        first
    });
    runs(&[]).code(1);
    assert_eq!(first_byte.join().unwrap(), [0x16], "a TLS handshake");
}

/// Another user may have created `./queens-data` in a shared directory.
#[cfg(unix)]
#[test]
fn a_data_directory_that_others_can_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let cluster = Cluster::public(&["--n", "12"]);
    let _coordinator = cluster.start(&[]);
    let auth = cluster.data_dir().join("auth");
    fs::set_permissions(&auth, fs::Permissions::from_mode(0o777)).unwrap();
    for mut program in [queensctl(&["runs"]), worker(&[])] {
        let end = Process::run(program.args(cluster.connection()));
        end.code(2).logs(&["can be written by other users"]);
    }
}

#[test]
fn programs_warn_of_plain_text() {
    let cluster = Cluster::public(&["--n", "12", "--insecure"]);
    let warned = cluster.start(&[]).stderr_line("WARNING: --insecure");
    assert!(warned.contains("cancel runs"), "{warned}");
    // The warning comes before the host is looked up.
    let nowhere = ["runs", "--insecure", "--coordinator", "http://nowhere.invalid:7171"];
    Process::run(queensctl(&nowhere)).logs(&["warning: --insecure"]);
}

#[test]
fn a_coordinator_moves_and_its_workers_keep_working() {
    let run = ["--n", "15", "--task-cost", "50000", "--sync-ms", "200"];
    let cluster = Cluster::public(&run);
    let first = cluster.start(&[]);
    let join = first.join_for("queensctl status");
    let mut worker = worker(&["--spool"]);
    worker.arg(cluster.path("spool")).args(SLOW);
    let worker = Process::start(worker.env("QUEENS_JOIN", first.join_for("worker")));
    // Waits for a count, which the move could lose.
    wait_until("a count", || joined(&join, &["export", "last"]).stdout.contains("accepted"));
    first.terminate().logs(&["everything is saved"]);
    let moved = cluster.path("moved");
    fs::rename(cluster.data_dir(), &moved).unwrap();
    let port = cluster.address().rsplit(':').next().unwrap().to_owned();
    let listen = ["--listen", &format!("0.0.0.0:{port}"), "--advertise", "127.0.0.1"];
    let mut second = coordinator(&["--n", "15", "--exit-when-done", "--sync-ms", "200", "--json"]);
    let end = Process::run(second.args(listen).arg("--data-dir").arg(moved));
    assert_eq!(end.json()["solutions"], "2279184");
    drop(worker);
}

/// No token can have the name that a local run counts under.
#[test]
fn a_local_run_counts_under_a_name_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let local = ["--n", "10", "--local", "--listen", "127.0.0.1:0"];
    run_in(dir.path(), "coordinator", &local).ok().prints(&["724 solutions"]);
    let lines = journal(&dir.path().join("queens-data/runs"));
    let accepted: Vec<_> = lines.iter().filter(|line| line["kind"] == "accepted").collect();
    assert!(!accepted.is_empty(), "{lines:?}");
    assert!(accepted.iter().all(|line| line.to_string().contains("(local)")), "{lines:?}");
}

#[test]
fn a_damaged_join_string_is_refused_and_not_repeated() {
    for mut program in [queensctl(&["runs"]), worker(&[])] {
        let end = Process::run(program.env("QUEENS_JOIN", "queens1-AAAAAAAAAAAAAAAAAAAA"));
        let end = end.code(2).logs(&["cut short"]);
        assert!(!end.stderr.contains("AAAA"), "{end:#?}");
    }
}

const MARK: &str = "<!-- attempts -->";

/// Makes one call with an empty message.
async fn attempt(coordinator: &CoordinatorEndpoint, path: &'static str) -> Result<(), Status> {
    let channel = coordinator.endpoints().remove(0).connect_lazy();
    let mut client = Grpc::new(coordinator.authenticate(channel));
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    // A stream of one message works for all kinds of calls.
    let request = Request::new(tokio_stream::once(()));
    let codec = ProstCodec::<(), ()>::default();
    let answers = client.streaming(request, PathAndQuery::from_static(path), codec).await?;
    answers.into_inner().message().await.map(drop)
}

/// Returns the outcome as the table shows it.
fn outcome(result: &Result<(), Status>) -> &'static str {
    let Err(status) = result else { return "allowed" };
    if explain_tls(status).is_some() {
        return "no TLS";
    }
    match status.code() {
        Code::Unauthenticated => "unauthenticated",
        Code::PermissionDenied => "denied",
        // Failures of the transport, not of a service.
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => "broken",
        _ => "allowed",
    }
}

/// Returns an address of this machine that is not loopback, if it has one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// Two coordinators that authenticate callers, by tokens and by certificates.
struct Scene {
    tokens: Service,
    certificates: Service,
    authority: Pki,
    others: Pki,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let (any, config) = (Ipv4Addr::UNSPECIFIED, Config::default());
        let tokens = Service::with(Box::new(MemoryStore::default()), config.clone(), any)?;
        let authority = Pki::new(&dir.path().join("pki"));
        let files = authority.server(&["localhost"]);
        let auth = Authenticator::MutualTls(Arc::new(auth::Pki::open(files)?));
        let store = Box::new(MemoryStore::default());
        let certificates = Service::with_auth(store, config, bind_port(any)?, auth)?;
        let others = Pki::new(&dir.path().join("others"));
        Ok(Self { tokens, certificates, authority, others, _dir: dir })
    }

    fn joined(&self, token: Token, ca: CaHash) -> CoordinatorEndpoint {
        let addresses = self.tokens.join(Role::Worker).addresses().to_vec();
        CoordinatorEndpoint::Token(JoinString::new(addresses, ca, token).expect("addresses"))
    }

    fn token(&self, name: &str, role: Role, lifetime: Option<Duration>) -> JoinString {
        let new = NewToken { lifetime, ..NewToken::new(role, name) };
        self.tokens.tokens().create(new).expect("a token")
    }

    fn plain(&self, host: IpAddr) -> CoordinatorEndpoint {
        let address = SocketAddr::new(host, self.tokens.address.port());
        CoordinatorEndpoint::plain(&format!("http://{address}"), true).expect("a URL")
    }

    /// Returns a caller whose certificate `authority` signed for this URI.
    fn certified(&self, authority: &Pki, uri: &str) -> CoordinatorEndpoint {
        let url = format!("https://localhost:{}", self.certificates.address.port());
        let PkiFiles { certificate, key, .. } = authority.caller("caller", uri, -1..9);
        CoordinatorEndpoint::mutual_tls(&url, &self.authority.ca(), &certificate, &key)
            .expect("good files")
    }
}

/// Returns a permitted role; also a wrong one, or any other for open calls.
fn roles(access: Access) -> (Role, Option<Role>) {
    match access {
        Access::Open => (Role::Viewer, Some(Role::Worker)),
        Access::Any => (Role::Viewer, None),
        Access::Worker => (Role::Worker, Some(Role::Operator)),
        Access::Viewer => (Role::Viewer, Some(Role::Worker)),
        Access::Operator => (Role::Operator, Some(Role::Viewer)),
    }
}

fn expected(access: Access, kind: &str) -> &'static str {
    match (kind, access) {
        // The handshake fails before any call.
        ("foreign CA" | "cert: other CA", _) => "no TLS",
        (_, Access::Open) | ("right" | "cert: right", _) => "allowed",
        ("wrong role" | "cert: wrong role", Access::Any) => "–",
        ("wrong role" | "cert: wrong role", _) => "denied",
        _ => "unauthenticated",
    }
}

/// Makes a call with every kind of credential; returns each kind with its outcome.
async fn row(
    scene: &Scene,
    (path, access): (&'static str, Access),
) -> Vec<(&'static str, &'static str)> {
    let (right, wrong) = roles(access);
    let uri = |role: Role| format!("spiffe://lab.example/queens/{role}/somebody");
    let certified = |uri: &str| scene.certified(&scene.authority, uri);
    let (own, revoked) = (scene.token("right", right, None), scene.token("revoked", right, None));
    assert_eq!(scene.tokens.tokens().revoke("revoked").expect("stored"), 1);
    let unknown = Token::new(TokenId(1), [1; Token::SECRET_BYTES]);
    let expired = scene.token("expired", right, Some(Duration::ZERO));
    let wrong_token = |role| CoordinatorEndpoint::Token(scene.token("wrong", role, None));
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let no_cert = format!("http://127.0.0.1:{}", scene.certificates.address.port());
    let mut outcomes = Vec::new();
    for (kind, coordinator) in [
        ("no token", Some(scene.plain(local))),
        ("unknown", Some(scene.joined(unknown, own.ca()))),
        ("expired", Some(CoordinatorEndpoint::Token(expired))),
        ("revoked", Some(CoordinatorEndpoint::Token(revoked))),
        ("wrong role", wrong.map(wrong_token)),
        ("foreign CA", Some(scene.joined(own.token().clone(), CaHash([7; 32])))),
        // Without a token too, but to an address that is not loopback.
        ("plain text", Some(scene.plain(own_address().unwrap_or(local)))),
        ("right", Some(CoordinatorEndpoint::Token(own))),
        ("no cert", CoordinatorEndpoint::plain(&no_cert, false).ok()),
        ("cert: other CA", Some(scene.certified(&scene.others, &uri(right)))),
        ("cert: nameless", Some(certified("spiffe://lab.example/chess"))),
        ("cert: wrong role", wrong.map(|role| certified(&uri(role)))),
        ("cert: right", Some(certified(&uri(right)))),
    ] {
        let outcome = match coordinator {
            Some(coordinator) => outcome(&attempt(&coordinator, path).await),
            None => "–",
        };
        assert_eq!(outcome, expected(access, kind), "{path} with {kind}");
        outcomes.push((kind, outcome));
    }
    for name in ["right", "expired", "wrong"] {
        scene.tokens.tokens().revoke(name).expect("stored");
    }
    outcomes
}

/// Makes every call of the access table with every kind of credential.
/// Compares the outcomes with `tests/data/access-matrix.md`, which `QUEENS_ATTEMPTS=write` updates.
#[tokio::test]
async fn every_attempt_has_the_outcome_in_the_matrix() -> anyhow::Result<()> {
    let scene = Scene::new()?;
    let mut table = String::new();
    for (path, access) in CALLS {
        let (kinds, outcomes): (Vec<_>, Vec<_>) =
            row(&scene, (path, *access)).await.into_iter().unzip();
        if table.is_empty() {
            let rule = "---|".repeat(kinds.len());
            table = format!("| call | {} |\n|---|{rule}\n", kinds.join(" | "));
        }
        table += &format!("| `{}` | {} |\n", path.trim_start_matches('/'), outcomes.join(" | "));
    }
    println!("{table}");
    scene.tokens.stop().await?;
    scene.certificates.stop().await?;
    compare(&table)
}

/// Compares the table with the one between two marks in the document.
fn compare(table: &str) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/access-matrix.md");
    let text = fs::read_to_string(&path)?;
    let parts: Vec<_> = text.split(MARK).collect();
    let [before, written, after] = parts.as_slice() else {
        panic!("{} has two marks '{MARK}'", path.display());
    };
    if std::env::var_os("QUEENS_ATTEMPTS").is_some_and(|value| value == "write") {
        let updated = format!("{before}{MARK}\n{table}{MARK}{after}");
        return Ok(fs::write(&path, updated)?);
    }
    assert_eq!(written.trim(), table.trim(), "update it: QUEENS_ATTEMPTS=write");
    Ok(())
}
