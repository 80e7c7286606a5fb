//! Addresses of databases. They are secrets, since they may contain a password.

use std::{
    ffi::{OsStr, OsString},
    fmt, fs,
    path::{Path, PathBuf},
};

use common::text::without_bom;
use proto::connect::file_of;

/// The value of `--store`: the URL of a PostgreSQL database, or `@FILE` with a URL.
///
/// `Display` and `Debug` omit the password. Parsing never fails, so that no parser repeats the password
/// in an error.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Url(String),
    File(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStoreUrl {
    #[error(
        "cannot read the store's address in {}: {why}; check the path and its permissions",
        file.display()
    )]
    File { file: PathBuf, why: String },
    #[error(
        "the store's address begins with '{0}': give postgres://USER@HOST/DATABASE, or @FILE with it"
    )]
    Scheme(String),
    #[error(
        "{file} contains a password, and every user of this machine can read it: allow only its owner \
         and group (chmod o= {file})"
    )]
    Readable { file: String },
    /// A password on the command line, which all users of the machine can read.
    #[error(
        "a password on the command line is visible to all users of this machine: give the store's \
         address in QUEENS_STORE, or in a file as @FILE"
    )]
    Shown,
}

/// Prefixes of database URLs.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

impl StoreUrl {
    /// Returns whether a text is a database URL and not a directory.
    pub fn is_url(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Returns the URL, which is a secret; reads it from FILE if the value is `@FILE`.
    /// Fails if the process's `arguments` contain its password.
    pub fn reveal(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<String, BadStoreUrl> {
        let url = match &self.0 {
            Source::Url(url) => url.clone(),
            Source::File(file) => {
                let text = fs::read_to_string(file).map_err(|why| BadStoreUrl::File {
                    file: file.clone(),
                    why: why.to_string(),
                })?;
                without_bom(&text).trim().to_owned()
            }
        };
        if !Self::is_url(&url) {
            let start = url.split(':').next().unwrap_or_default();
            let start = start.chars().take(12).collect();
            return Err(BadStoreUrl::Scheme(start));
        }
        if let Source::File(file) = &self.0
            && has_password(&url)
            && others_can_read(file)
        {
            return Err(BadStoreUrl::Readable { file: file.display().to_string() });
        }
        if has_password(&url)
            && arguments.into_iter().any(|shown| shown.to_string_lossy().contains(&url))
        {
            return Err(BadStoreUrl::Shown);
        }
        Ok(url)
    }
}

fn has_password(url: &str) -> bool {
    let (user, ..) = parts(url);
    user.is_some_and(|user| user.contains(':')) || url.contains("password=")
}

/// Splits a URL into user and password, host and database, and query.
///
/// As for tokio-postgres, user and password are everything up to the first `@`.
fn parts(url: &str) -> (Option<&str>, &str, &str) {
    let (start, query) = split_query(url);
    let rest = start.split_once("://").map_or("", |(_, rest)| rest);
    match rest.split_once('@') {
        Some((user, place)) => (Some(user), place, query),
        None => (None, rest, query),
    }
}

/// Splits a URL at the `?` of its query: one before the first `@` is part of the password.
pub(crate) fn split_query(url: &str) -> (&str, &str) {
    let place = url.find('@').map_or(0, |at| at + 1);
    match url[place..].find('?') {
        Some(at) => (&url[..place + at], &url[place + at + 1..]),
        None => (url, ""),
    }
}

impl From<OsString> for StoreUrl {
    fn from(given: OsString) -> Self {
        Self::from(given.as_os_str())
    }
}

impl From<&OsStr> for StoreUrl {
    fn from(given: &OsStr) -> Self {
        Self(match file_of(given) {
            Some(file) => Source::File(file.to_owned()),
            None => Source::Url(given.to_string_lossy().into_owned()),
        })
    }
}

/// Returns whether users besides the owner and the group can read a file.
pub(crate) fn others_can_read(file: impl AsRef<Path>) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        false
    }
}

impl From<&str> for StoreUrl {
    fn from(text: &str) -> Self {
        Self::from(OsStr::new(text))
    }
}

/// Formats user, host and database without the password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match &self.0 {
            Source::Url(url) => url,
            Source::File(file) => {
                return write!(f, "the database whose address is in {}", file.display());
            }
        };
        let (user, place, query) = parts(url);
        // An unescaped `@` ends a password early: nothing before the last one is shown.
        let is_clear = !query.contains('@') && user.is_none_or(|user| !user.contains("password="));
        let place = place.rsplit('@').next().unwrap_or_default();
        let (place, query) = if is_clear { (place, query) } else { ("", "") };
        let user = user.and_then(|user| user.split([':', '/', '?']).next());
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        // The query names the host of a connection over a Unix socket.
        let host = query.split('&').find(|pair| pair.starts_with("host="));
        let host = host.map(|host| format!("?{host}")).unwrap_or_default();
        write!(f, "postgres://{user}{place}{host}")
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shows_a_password() {
        for (given, shown) in [
            ("postgres://lab:hush@db/queens", "postgres://lab@db/queens"),
            ("postgres://lab:hu@sh@db/q?sslmode=require", "postgres://lab@db/q"),
            ("postgres://lab:hu?sh@db/q?sslmode=require", "postgres://lab@db/q"),
            ("postgres://lab:hu/sh@/q?host=/run/db", "postgres://lab@/q?host=/run/db"),
            ("postgres://lab:hu@s?h@db/q", "postgres://lab@"),
            ("postgres://db/q?user=lab&password=hu@sh", "postgres://db@"),
            ("postgres://db/q?user=lab&password=hush", "postgres://db/q"),
            ("postgres:///q?host=/run/db&password=hush", "postgres:///q?host=/run/db"),
            ("postgres://lab@db/q", "postgres://lab@db/q"),
        ] {
            let url = StoreUrl::from(given);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("StoreUrl({shown})"));
            assert_eq!(url.reveal([]).as_deref(), Ok(given));
            let typed = ["coordinator".into(), format!("--store={given}").into()];
            let refused = url.reveal(typed).err();
            let expected = given.contains("hu").then_some(BadStoreUrl::Shown);
            assert_eq!(refused, expected, "{given}");
        }
    }

    #[test]
    fn an_address_is_read_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "\u{feff}postgres://lab:hush@db/queens\n").unwrap();
        let given = StoreUrl::from(&*format!("@{}", file.path().display()));
        let typed = [format!("--store=@{}", file.path().display()).into()];
        assert_eq!(given.reveal(typed).unwrap(), "postgres://lab:hush@db/queens");
        assert!(!given.to_string().contains("hush"));
        #[cfg(unix)]
        for (mode, is_refused) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused =
                given.reveal([]).is_err_and(|error| error.to_string().contains("chmod o="));
            assert_eq!(refused, is_refused, "{mode:o}");
        }
        let missing = StoreUrl::from("@/no/such/file").reveal([]).unwrap_err();
        assert!(missing.to_string().contains("/no/such/file"), "{missing}");
        let other = StoreUrl::from("mysql://lab:hush@db/q").reveal([]).unwrap_err();
        assert_eq!(other, BadStoreUrl::Scheme("mysql".to_owned()));
    }
}
