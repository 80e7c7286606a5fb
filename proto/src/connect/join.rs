//! Join strings, their files on the coordinator's machine, and workers' secrets.

use std::{
    ffi::OsStr,
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap_lex::OsStrExt as _;
use common::{messages::run::WorkerId, text::without_bom};
use sha2::{Digest, Sha256};

use super::CaHash;

pub(crate) const JOIN_PREFIX: &str = "queens1-";

/// Maximum number of addresses of one coordinator.
const MAX_ADDRESSES: usize = 8;

/// The folder of a data directory with keys, tokens and join strings.
pub const FOLDER: &str = "auth";

/// Returns the file of a role's join string in [`FOLDER`].
pub fn join_file(role: &str) -> String {
    format!("{role}.join")
}

/// A coordinator's addresses, the hash of its private authority, and a token.
///
/// A join string is as secret as its token: no `Display`, and `Debug` shows only the token's identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinString {
    addresses: Vec<String>,
    ca: CaHash,
    token: Token,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadJoin {
    #[error(
        "invalid join string: it must start with '{JOIN_PREFIX}'; the coordinator names its file when it starts"
    )]
    Form,
    #[error("the join string is cut short or was changed; copy all of it again")]
    Damaged,
    #[error("'{0}' in the join string is not HOST:PORT; create it again with another --advertise")]
    Address(String),
    #[error("a join string has at most {MAX_ADDRESSES} addresses; give fewer with --peer")]
    TooMany,
}

/// A join string, or its file, that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Join(#[from] BadJoin),
    #[error("{path}: {why}", path = path.display())]
    File { path: PathBuf, why: io::Error },
    #[error("{path}: {why}", path = path.display())]
    Content { path: PathBuf, why: BadJoin },
    #[error(
        "{path} {problem}, so it may lead to a coordinator other than yours: run this program as the \
         coordinator's user, or give its join string (QUEENS_JOIN=queens1-…, or --join @FILE)",
        path = path.display()
    )]
    NotOwn { path: PathBuf, problem: &'static str },
}

impl JoinString {
    /// Creates a join string for addresses `HOST:PORT`; clients try them in order.
    pub fn new(addresses: Vec<String>, ca: CaHash, token: Token) -> Result<Self, BadJoin> {
        match addresses.len() {
            0 => return Err(BadJoin::Damaged),
            1..=MAX_ADDRESSES => {}
            _ => return Err(BadJoin::TooMany),
        }
        if let Some(bad) = addresses.iter().find(|address| !is_host_port(address)) {
            return Err(BadJoin::Address(bad.clone()));
        }
        Ok(Self { addresses, ca, token })
    }

    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub const fn ca(&self) -> CaHash {
        self.ca
    }

    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Returns the join string as text.
    pub fn expose(&self) -> String {
        let addresses = self.addresses.join(",");
        armor(JOIN_PREFIX, &[&self.ca.0, &self.token.to_bytes()[..], addresses.as_bytes()].concat())
    }

    /// Parses `--join STRING|@FILE`.
    pub fn of_option(given: &OsStr) -> Result<Self, JoinError> {
        let Some(path) = file_of(given).map(Path::to_owned) else {
            return Ok(given.to_str().ok_or(BadJoin::Form)?.parse()?);
        };
        match fs::read_to_string(&path) {
            Ok(text) => text.parse().map_err(|why| JoinError::Content { path, why }),
            Err(why) => Err(JoinError::File { path, why }),
        }
    }

    /// Reads a role's join string from a coordinator's data directory, if present.
    ///
    /// Another user may have planted the directory, so the file is used only if it and its folder belong
    /// to the caller and only the caller can write them.
    pub fn find(data_dir: &Path, role: &str) -> Result<Option<Self>, JoinError> {
        let folder = data_dir.join(FOLDER);
        let path = folder.join(join_file(role));
        let read = || -> io::Result<Result<String, JoinError>> {
            if let Some(problem) = not_own(&fs::metadata(&folder)?) {
                return Ok(Err(JoinError::NotOwn { path: folder.clone(), problem }));
            }
            // Checks the open file, not the path: the file could be replaced in between.
            let file = fs::File::open(&path)?;
            Ok(match not_own(&file.metadata()?) {
                Some(problem) => Err(JoinError::NotOwn { path: path.clone(), problem }),
                None => Ok(io::read_to_string(file)?),
            })
        };
        match read() {
            Ok(text) => text?.parse().map(Some).map_err(|why| JoinError::Content { path, why }),
            Err(why)
                if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(why) => Err(JoinError::File { path, why }),
        }
    }
}

impl FromStr for JoinString {
    type Err = BadJoin;

    fn from_str(text: &str) -> Result<Self, BadJoin> {
        let text = without_bom(text).trim();
        if !text.starts_with(JOIN_PREFIX) {
            return Err(BadJoin::Form);
        }
        let bytes = disarmor(JOIN_PREFIX, text).ok_or(BadJoin::Damaged)?;
        let (ca, rest) = bytes.split_first_chunk().ok_or(BadJoin::Damaged)?;
        let (token, rest) = rest.split_first_chunk().ok_or(BadJoin::Damaged)?;
        let addresses = std::str::from_utf8(rest).map_err(|_| BadJoin::Damaged)?;
        Self::new(
            addresses.split(',').map(str::to_owned).collect(),
            CaHash(*ca),
            Token::from_bytes(token),
        )
    }
}

/// Returns the file of an option's value `@FILE`.
pub fn file_of(given: &OsStr) -> Option<&Path> {
    given.strip_prefix("@").map(Path::new)
}

/// Returns whether a text is a valid `HOST:PORT`: IPv6 addresses need brackets.
pub fn is_host_port(text: &str) -> bool {
    let Ok(authority) = text.parse::<tonic::codegen::http::uri::Authority>() else {
        return false;
    };
    let named = !authority.host().is_empty() && !text.contains('@');
    named && authority.port_u16().is_some_and(|port| port != 0)
}

/// Encodes bytes, with a checksum, as letters, digits, `-` and `_`.
/// The text passes unchanged through every shell, chat and mail.
pub(crate) fn armor(prefix: &str, bytes: &[u8]) -> String {
    let crc = crc32fast::hash(bytes).to_be_bytes();
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode([bytes, &crc].concat()))
}

/// Decodes [`armor`]; `None` if a character is missing, added or changed.
fn disarmor(prefix: &str, text: &str) -> Option<Vec<u8>> {
    let mut bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(prefix)?).ok()?;
    let split = bytes.len().checked_sub(4)?;
    let crc = bytes.split_off(split);
    (crc == crc32fast::hash(&bytes).to_be_bytes()).then_some(bytes)
}

/// Returns why another user may have written a file; `None` if that is impossible.
#[cfg(unix)]
fn not_own(metadata: &fs::Metadata) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt as _;
    if super::own::is_foreign(metadata) {
        return Some("belongs to another user");
    }
    (metadata.mode() & 0o022 != 0).then_some("can be written by other users")
}

#[cfg(not(unix))]
fn not_own(_: &fs::Metadata) -> Option<&'static str> {
    None
}

pub(crate) const TOKEN_PREFIX: &str = "queenstoken1-";

/// Public identifier of a token: 8 lower-case hexadecimal digits as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u32);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A secret that grants a role at one coordinator.
///
/// It has no `Display`, and its `Debug` shows only the identifier, so that it cannot be logged by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: TokenId,
    secret: [u8; Self::SECRET_BYTES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid token: it is cut short or was changed; copy it again")]
pub struct BadToken;

impl Token {
    /// The length of the secret: too long to guess, so a fast hash protects it.
    pub const SECRET_BYTES: usize = 32;

    const BYTES: usize = 4 + Self::SECRET_BYTES;

    /// Creates a token; the secret must be random bytes from the operating system.
    pub const fn new(id: TokenId, secret: [u8; Self::SECRET_BYTES]) -> Self {
        Self { id, secret }
    }

    pub const fn id(&self) -> TokenId {
        self.id
    }

    pub const fn secret(&self) -> &[u8; Self::SECRET_BYTES] {
        &self.secret
    }

    /// Returns the text that is sent in the header `authorization: Bearer …`.
    pub fn expose(&self) -> String {
        armor(TOKEN_PREFIX, &self.to_bytes())
    }

    fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.id.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.secret);
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (id, secret) = bytes.split_at(4);
        Self {
            id: TokenId(u32::from_be_bytes(id.try_into().expect("four bytes"))),
            secret: secret.try_into().expect("32 bytes"),
        }
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let bytes = disarmor(TOKEN_PREFIX, text).ok_or(BadToken)?;
        let bytes = bytes.as_slice().try_into().map_err(|_| BadToken)?;
        Ok(Self::from_bytes(bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

/// A secret that a coordinator issues to one worker with one token, to identify it.
///
/// Others see only its hash, [`WorkerSecret::worker`].
#[derive(Clone, PartialEq, Eq)]
pub struct WorkerSecret([u8; Self::BYTES]);

/// Invalid bytes or text of a [`WorkerSecret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid worker secret: expected 32 bytes, or 64 hexadecimal digits as text")]
pub struct BadWorkerSecret;

impl WorkerSecret {
    pub const BYTES: usize = 32;

    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the worker's public identity: the first half of the secret's SHA-256.
    pub fn worker(&self) -> WorkerId {
        let digest = Sha256::digest(self.0);
        let half = digest.first_chunk().expect("a digest has 32 bytes");
        WorkerId(u128::from_be_bytes(*half))
    }

    /// Returns the secret as text, for storage in a private file.
    pub fn expose(&self) -> String {
        common::messages::hex::encode(&self.0)
    }
}

impl TryFrom<&[u8]> for WorkerSecret {
    type Error = BadWorkerSecret;

    fn try_from(bytes: &[u8]) -> Result<Self, BadWorkerSecret> {
        bytes.try_into().map(Self).map_err(|_| BadWorkerSecret)
    }
}

impl FromStr for WorkerSecret {
    type Err = BadWorkerSecret;

    fn from_str(text: &str) -> Result<Self, BadWorkerSecret> {
        common::messages::hex::decode(&text.to_ascii_lowercase()).map(Self).ok_or(BadWorkerSecret)
    }
}

impl fmt::Debug for WorkerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerSecret({})", self.worker())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn join(addresses: &[&str]) -> Result<JoinString, BadJoin> {
        let token = Token::new(TokenId(7), [9; 32]);
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        JoinString::new(addresses, CaHash([3; 32]), token)
    }

    #[test]
    fn a_join_string_round_trips() {
        for addresses in [&["lab-1:7171"][..], &["10.0.0.1:7171", "[2001:db8::1]:9"]] {
            let join = join(addresses).unwrap();
            let text = join.expose();
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            assert!(text.chars().all(plain), "{text}");
            assert_eq!(text.parse(), Ok(join.clone()));
            assert_eq!(format!("\n {text} \n").parse(), Ok(join));
        }
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for bad in ["", "host", "host:0", "host:70000", ":7171", "a b:1", "x@y:1"] {
            assert_eq!(join(&[bad]), Err(BadJoin::Address(bad.to_owned())), "{bad}");
        }
        assert!(join(&[]).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let join = join(&["lab-1:7171"]).unwrap();
        let shown = format!("{join:?}");
        assert!(shown.contains("lab-1:7171") && shown.contains("00000007"), "{shown}");
        assert!(!shown.contains("9, 9"), "{shown}");
    }

    #[test]
    fn a_workers_secret_round_trips_and_shows_only_its_hash() {
        let secret = WorkerSecret::new(*b"a secret of thirty-two bytes, ok");
        assert_eq!(secret.expose().parse(), Ok(secret.clone()));
        assert_eq!(WorkerSecret::try_from(secret.as_bytes().as_slice()), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), format!("WorkerSecret({})", secret.worker()));
        // Frozen: journals contain these identities of workers.
        assert_eq!(
            WorkerSecret::new([0; 32]).worker().to_string(),
            "66687aadf862bd776c8fc18b8e9f8e20"
        );
        for bad in ["", "00", &"0".repeat(63), &"g".repeat(64), &"+0".repeat(32), &"é".repeat(32)]
        {
            assert_eq!(bad.parse::<WorkerSecret>(), Err(BadWorkerSecret), "{bad}");
        }
        assert_eq!(WorkerSecret::try_from([0; 31].as_slice()), Err(BadWorkerSecret));
    }

    #[cfg(unix)]
    mod files {
        use std::os::unix::fs::{PermissionsExt as _, chown};

        use super::*;

        fn set_mode(path: &Path, mode: u32) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }

        /// Creates a data directory with a worker's join string.
        fn directory() -> tempfile::TempDir {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join(FOLDER);
            let path = folder.join("worker.join");
            fs::create_dir(&folder).unwrap();
            fs::write(&path, join(&["lab-1:7171"]).unwrap().expose() + "\n").unwrap();
            set_mode(&folder, 0o700);
            set_mode(&path, 0o600);
            dir
        }

        fn rejected(dir: &Path) -> String {
            JoinString::find(dir, "worker").unwrap_err().to_string()
        }

        #[test]
        fn a_join_string_is_found_in_a_data_directory() {
            let dir = directory();
            let find = |dir: &Path, role| JoinString::find(dir, role).unwrap();
            assert_eq!(find(dir.path(), "worker"), Some(join(&["lab-1:7171"]).unwrap()));
            assert_eq!(find(dir.path(), "operator"), None);
            assert_eq!(find(&dir.path().join("nowhere"), "worker"), None);
            fs::write(dir.path().join(FOLDER).join("worker.join"), "queens1-half").unwrap();
            let error = rejected(dir.path());
            assert!(error.contains("worker.join: the join string is cut short"), "{error}");
        }

        #[test]
        fn a_file_that_others_can_write_or_own_is_not_used() {
            for (name, mode) in [("auth", 0o770), ("auth", 0o702), ("auth/worker.join", 0o620)] {
                let dir = directory();
                set_mode(&dir.path().join(name), mode);
                let error = rejected(dir.path());
                assert!(error.contains(&format!("{name} can be written by other")), "{error}");
                // Only root can change the owner of a file.
                if rustix::process::geteuid().is_root() {
                    chown(dir.path().join(name), Some(1), None).unwrap();
                    let error = rejected(dir.path());
                    assert!(error.contains(&format!("{name} belongs to another user")), "{error}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_changed_character_is_detected(at in 0usize..100, by in 1u8..60) {
            let text = join(&["lab-1:7171"]).unwrap().expose();
            let mut bytes = text.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] = b'A' + (bytes[at].wrapping_sub(b'A').wrapping_add(by)) % 58;
            let changed = String::from_utf8(bytes).unwrap();
            if changed != text {
                prop_assert!(changed.parse::<JoinString>().is_err(), "{changed}");
            }
        }

        #[test]
        fn no_text_panics(text in "(queens1-)?[ -~]{0,200}") {
            let _ = text.parse::<JoinString>();
            let _ = text.parse::<Token>();
        }
    }
}
