//! Keys and tokens: files of the data directory, readable by their owner alone; or kept where the
//! runs are, if that is no directory.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Authority, AuthorityError, TokenBook};

const AUTHORITY_KEY: &str = "ca.key";
const AUTHORITY_CERTIFICATE: &str = "ca.pem";
const TOKENS: &str = "tokens.json";

/// Another place than a folder for small texts with names. Its calls may block.
pub trait Cabinet: Send + Sync {
    /// The text of this name, if there is one.
    fn read(&self, name: &str) -> Result<Option<String>, CabinetError>;

    /// Keeps a text, durably, whole or not at all.
    fn write(&self, name: &str, text: &str) -> Result<(), CabinetError>;

    /// For people: where the text of this name is.
    fn place(&self, name: &str) -> String;
}

/// What a [`Cabinet`] cannot do, in its own words: this module knows no place but a folder.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct CabinetError(Box<dyn std::error::Error + Send + Sync>);

impl CabinetError {
    /// An error of the place.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

/// The folder `doors` of a data directory, or what stands for it.
#[derive(Clone, Debug)]
pub struct Vault {
    kept: Kept,
}

#[derive(Clone)]
enum Kept {
    Folder(PathBuf),
    Cabinet(Arc<dyn Cabinet>),
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => f.debug_tuple("Folder").field(folder).finish(),
            Self::Cabinet(cabinet) => f.debug_tuple("Cabinet").field(&cabinet.place("")).finish(),
        }
    }
}

/// What can go wrong with the files.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The file system.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        why: io::Error,
    },
    /// Where they are kept instead.
    #[error(transparent)]
    Cabinet(#[from] CabinetError),
    /// The authority's files.
    #[error("{folder}: {why}; restore the files from a backup, or remove both to let every worker join anew", folder = folder.display())]
    Authority {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        why: AuthorityError,
    },
    /// The list of tokens.
    #[error("{path} is damaged ({why}): restore it from a backup, or remove it to let every worker join anew", path = path.display())]
    Tokens {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: serde_json::Error,
    },
}

impl Vault {
    /// The vault of a data directory; made when something is kept in it.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            kept: Kept::Folder(data_dir.join("doors")),
        }
    }

    /// A vault in another place.
    pub fn in_cabinet(cabinet: Arc<dyn Cabinet>) -> Self {
        Self {
            kept: Kept::Cabinet(cabinet),
        }
    }

    /// The authority: the one that is kept, or a new one, kept before it is returned.
    pub fn authority(&self, now_unix_ms: u64) -> Result<Authority, VaultError> {
        let wrap = |why| VaultError::Authority {
            folder: self.path(""),
            why,
        };
        let key = self.read(AUTHORITY_KEY)?;
        let certificate = self.read(AUTHORITY_CERTIFICATE)?;
        match (key, certificate) {
            (Some(key), Some(certificate)) => Authority::load(&key, &certificate).map_err(wrap),
            // The certificate is written last: without it the key was never used.
            (_, None) => {
                let authority = Authority::create(now_unix_ms).map_err(wrap)?;
                self.write(AUTHORITY_KEY, &authority.key_pem())?;
                self.write(AUTHORITY_CERTIFICATE, authority.certificate_pem())?;
                Ok(authority)
            }
            (None, Some(_)) => Err(wrap(AuthorityError::Damaged(format!(
                "{AUTHORITY_KEY} is missing"
            )))),
        }
    }

    /// Where the authority's certificate lies.
    pub fn certificate_path(&self) -> PathBuf {
        self.path(AUTHORITY_CERTIFICATE)
    }

    /// The tokens that are kept.
    pub fn tokens(&self) -> Result<TokenBook, VaultError> {
        let Some(text) = self.read(TOKENS)? else {
            return Ok(TokenBook::default());
        };
        serde_json::from_str(&text).map_err(|why| VaultError::Tokens {
            path: self.path(TOKENS),
            why,
        })
    }

    /// Keeps the tokens, durably.
    pub fn keep_tokens(&self, tokens: &TokenBook) -> Result<(), VaultError> {
        let text = serde_json::to_string_pretty(tokens).expect("tokens become JSON");
        self.write(TOKENS, &text)
    }

    /// The file `name`, if it is there.
    pub fn read(&self, name: &str) -> Result<Option<String>, VaultError> {
        let folder = match &self.kept {
            Kept::Folder(folder) => folder,
            Kept::Cabinet(cabinet) => return Ok(cabinet.read(name)?),
        };
        let path = folder.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(VaultError::File { path, why }),
        }
    }

    /// Writes the file `name`, whole or not at all, for its owner's eyes.
    pub fn write(&self, name: &str, text: &str) -> Result<(), VaultError> {
        let folder = match &self.kept {
            Kept::Folder(folder) => folder,
            Kept::Cabinet(cabinet) => return Ok(cabinet.write(name, text)?),
        };
        let path = folder.join(name);
        write_private(folder, &path, text).map_err(|why| VaultError::File { path, why })
    }

    /// The path of the file `name`; for people where it is no file.
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.kept {
            Kept::Folder(folder) => folder.join(name),
            Kept::Cabinet(cabinet) => cabinet.place(name).into(),
        }
    }
}

fn write_private(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name is durable once its folder is.
    #[cfg(unix)]
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}
