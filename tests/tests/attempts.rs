//! Every call of the table, tried with every key that does not fit, and with the one that does. What
//! each attempt got is the table in SECURITY.md, which `QUEENS_ATTEMPTS=write` renews.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
    time::Duration,
};

use coordinator::{
    doors::{Access, Gate, Keys, Locks, Pki, PkiFiles, Role, Vault, calls},
    driver::Clock,
    sched::Config,
    store::MemoryStore,
};
use proto::door::{CaHash, JoinString, Token, TokenId, Way, explain_tls, install_crypto};
use tests::{
    face::Face,
    pki::{Files, Pki as Authority},
};
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;
use worker::config::{Address, TlsFiles};

const MARK: &str = "<!-- attempts -->";

/// One call with a message that says nothing: what it got.
async fn attempt(way: &Way, path: &'static str) -> Result<(), Status> {
    let channel = way.endpoints().remove(0).connect_lazy();
    let mut client = Grpc::new(way.door(channel));
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    // Streams of one message are what all kinds of calls have in common.
    let request = Request::new(tokio_stream::once(()));
    let codec = ProstCodec::<(), ()>::default();
    let answers = client
        .streaming(request, PathAndQuery::from_static(path), codec)
        .await?;
    answers.into_inner().message().await.map(drop)
}

/// In one word, for the table.
fn word(got: &Result<(), Status>) -> &'static str {
    let Err(status) = got else { return "in" };
    if explain_tls(status).is_some() {
        return "no TLS";
    }
    match status.code() {
        Code::Unauthenticated => "who?",
        Code::PermissionDenied => "may not",
        // The transport's own, none of a service.
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => "broken",
        _ => "in",
    }
}

/// An address of this machine that is not loopback, where it has one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// Two coordinators, one of tokens and one of certificates, that ask everybody.
struct Scene {
    keys: Arc<Keys>,
    tokens: Face,
    certificates: Face,
    authority: Authority,
    others: Authority,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> anyhow::Result<Self> {
        install_crypto();
        let dir = tempfile::tempdir()?;
        let mut opened = None;
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let tokens = Face::behind(store(), Config::default(), any, |address| {
            let address = format!("127.0.0.1:{}", address.port());
            let vault = Vault::of(dir.path());
            let keys = Arc::new(Keys::open(vault, vec![address], Clock::start())?);
            opened = Some(keys.clone());
            Ok(asking(Locks::Tokens(keys)))
        })?;
        let authority = Authority::new(&dir.path().join("pki"));
        let server = authority.server(&["localhost"]);
        let certificates = Face::behind(store(), Config::default(), any, |_| {
            let files = PkiFiles {
                certificate: server.certificate.clone(),
                key: server.key.clone(),
                client_ca: authority.ca(),
            };
            Ok(asking(Locks::Certificates(Arc::new(Pki::open(files)?))))
        })?;
        Ok(Self {
            keys: opened.expect("the gate was made"),
            tokens,
            certificates,
            others: Authority::new(&dir.path().join("others")),
            authority,
            _dir: dir,
        })
    }

    fn joined(&self, token: Token, ca: CaHash) -> Way {
        let address = format!("127.0.0.1:{}", self.tokens.address.port());
        Way::Joined(JoinString::new(vec![address], ca, token).expect("an address"))
    }

    fn ca(&self) -> CaHash {
        let join = self.keys.join(Role::Worker).expect("it was kept");
        join.expect("it was made").ca()
    }

    /// A way with a token of this role, made for this one attempt.
    fn token(&self, name: &str, role: Role, lifetime: Option<Duration>) -> Way {
        let made = self.keys.create((role, name), lifetime);
        self.joined(made.expect("a token").token().clone(), self.ca())
    }

    fn plain(&self, host: IpAddr) -> Way {
        let address = SocketAddr::new(host, self.tokens.address.port());
        let address = Address::new(&format!("http://{address}"), true).expect("a URL");
        address.way().clone()
    }

    fn certified(&self, files: &Files) -> Way {
        let url = format!("https://localhost:{}", self.certificates.address.port());
        let files = TlsFiles {
            ca: self.authority.ca(),
            certificate: files.certificate.clone(),
            key: files.key.clone(),
        };
        let address = Address::certified(&url, &files).expect("good files");
        address.way().clone()
    }
}

fn store() -> Box<MemoryStore> {
    Box::new(MemoryStore::default())
}

fn asking(locks: Locks) -> Gate {
    Gate::Guarded {
        locks,
        require_token: true,
    }
}

/// Who may make a call, and who may not; nobody may not where any may.
fn roles(access: Access) -> (Role, Option<Role>) {
    match access {
        Access::Open => (Role::Viewer, Some(Role::Worker)),
        Access::Any => (Role::Viewer, None),
        Access::Worker => (Role::Worker, Some(Role::Operator)),
        Access::Viewer => (Role::Viewer, Some(Role::Worker)),
        Access::Operator => (Role::Operator, Some(Role::Viewer)),
    }
}

/// The kinds of attempts, in the table's order.
const KINDS: [&str; 13] = [
    "no token",
    "unknown",
    "expired",
    "revoked",
    "wrong role",
    "foreign CA",
    "plain text",
    "right",
    "no cert",
    "cert: other CA",
    "cert: nameless",
    "cert: wrong role",
    "cert: right",
];

fn expected(access: Access, kind: &str) -> &'static str {
    match (kind, access) {
        // Nothing is said before both sides know each other.
        ("foreign CA" | "cert: other CA", _) => "no TLS",
        (_, Access::Open) | ("right" | "cert: right", _) => "in",
        ("wrong role" | "cert: wrong role", Access::Any) => "–",
        ("wrong role" | "cert: wrong role", _) => "may not",
        _ => "who?",
    }
}

async fn row(scene: &Scene, (path, access): (&'static str, Access)) -> Vec<&'static str> {
    let (right, wrong) = roles(access);
    let uri = |role: Role| format!("spiffe://lab.example/queens/{role}/somebody");
    let authority = &scene.authority;
    let own = scene.token("right", right, None);
    let Way::Joined(own_join) = &own else {
        unreachable!("it is a join string")
    };
    let revoked = scene.token("revoked", right, None);
    assert_eq!(scene.keys.revoke("revoked").expect("kept"), 1);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut words = Vec::new();
    for kind in KINDS {
        let way = match kind {
            "no token" => Some(scene.plain(local)),
            "unknown" => {
                let unknown = Token::new(TokenId(1), [1; Token::SECRET_BYTES]);
                Some(scene.joined(unknown, scene.ca()))
            }
            "expired" => Some(scene.token("expired", right, Some(Duration::ZERO))),
            "revoked" => Some(revoked.clone()),
            "wrong role" => wrong.map(|role| scene.token("wrong", role, None)),
            "foreign CA" => Some(scene.joined(own_join.token().clone(), CaHash([7; 32]))),
            // From another address nothing that is shown in plain text is looked at.
            "plain text" => Some(scene.plain(own_address().unwrap_or(local))),
            "right" => Some(own.clone()),
            "no cert" => {
                let url = format!("http://127.0.0.1:{}", scene.certificates.address.port());
                Some(Address::new(&url, false).expect("a URL").way().clone())
            }
            "cert: other CA" => Some(&scene.others)
                .map(|others| scene.certified(&others.caller("other", &uri(right), -1..9))),
            "cert: nameless" => {
                let nameless = authority.caller("nameless", "spiffe://lab.example/chess", -1..9);
                Some(scene.certified(&nameless))
            }
            "cert: wrong role" => {
                wrong.map(|role| scene.certified(&authority.caller("wrong", &uri(role), -1..9)))
            }
            _ => Some(scene.certified(&authority.caller("right", &uri(right), -1..9))),
        };
        let word = match way {
            Some(way) => word(&attempt(&way, path).await),
            None => "–",
        };
        assert_eq!(word, expected(access, kind), "{path} with {kind}");
        words.push(word);
        for name in ["right", "expired", "wrong"] {
            if matches!(kind, "cert: right") {
                scene.keys.revoke(name).expect("kept");
            }
        }
    }
    words
}

#[tokio::test]
async fn every_attempt_gets_what_the_table_says() -> anyhow::Result<()> {
    let scene = Scene::new()?;
    let mut table = format!(
        "| call | {} |\n|---|{}\n",
        KINDS.join(" | "),
        "---|".repeat(KINDS.len())
    );
    for (path, access) in calls() {
        let words = row(&scene, (path, *access)).await;
        table += &format!(
            "| `{}` | {} |\n",
            path.trim_start_matches('/'),
            words.join(" | ")
        );
    }
    println!("{table}");
    scene.tokens.stop().await?;
    scene.certificates.stop().await?;
    compare(&table)
}

/// The document holds this table between two marks.
fn compare(table: &str) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../SECURITY.md");
    let text = fs::read_to_string(&path)?;
    let parts: Vec<_> = text.split(MARK).collect();
    let [before, written, after] = parts.as_slice() else {
        panic!("{} has two marks '{MARK}'", path.display());
    };
    if std::env::var_os("QUEENS_ATTEMPTS").is_some_and(|value| value == "write") {
        let renewed = format!("{before}{MARK}\n{table}{MARK}{after}");
        return Ok(fs::write(&path, renewed)?);
    }
    assert_eq!(
        written.trim(),
        table.trim(),
        "renew it: QUEENS_ATTEMPTS=write"
    );
    Ok(())
}
