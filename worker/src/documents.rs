//! What a program says of itself for shells and for `man`.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Command, ValueEnum as _};
use clap_complete::Shell;

/// What the end of `--help` says of it.
pub(crate) const HELP: &str = "\
More:
  --completions SHELL   prints completions for bash, elvish, fish, powershell
                        or zsh: source <(PROGRAM --completions bash)
  --man-pages DIR       writes a man page for every command into a directory";

/// Something else than the work of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Completions of this shell, on standard output.
    Completions(Shell),
    /// Man pages, in this directory.
    ManPages(PathBuf),
}

/// Documents that cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error("--completions takes one of bash, elvish, fish, powershell, zsh")]
    Shell,
    #[error("--man-pages takes a directory")]
    Directory,
    #[error("cannot write to {place}: {why}; make room there, or give another place")]
    Write { place: String, why: io::Error },
}

impl Asked {
    /// What a command line, its program left out, asks for, if it begins like that. These are no
    /// flags beside others: they stand alone, where other commands may need more.
    pub(crate) fn read(arguments: &[OsString]) -> Result<Option<Self>, DocumentError> {
        let [flag, rest @ ..] = arguments else {
            return Ok(None);
        };
        match (flag.to_str(), rest) {
            (Some("--completions"), [shell]) => {
                let shell = shell.to_str().ok_or(DocumentError::Shell)?;
                let shell = Shell::from_str(shell, true).map_err(|_| DocumentError::Shell)?;
                Ok(Some(Self::Completions(shell)))
            }
            (Some("--completions"), _) => Err(DocumentError::Shell),
            (Some("--man-pages"), [dir]) => Ok(Some(Self::ManPages(dir.into()))),
            (Some("--man-pages"), _) => Err(DocumentError::Directory),
            (Some(_) | None, _) => Ok(None),
        }
    }

    /// Writes what was asked for.
    pub(crate) fn write(self, command: &mut Command) -> Result<(), DocumentError> {
        match self {
            Self::Completions(shell) => {
                let name = command.get_name().to_owned();
                let mut text = Vec::new();
                clap_complete::generate(shell, command, name, &mut text);
                let mut out = io::stdout().lock();
                match io::Write::write_all(&mut out, &text)
                    .and_then(|()| io::Write::flush(&mut out))
                {
                    // A reader that has seen enough.
                    Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    written => written.map_err(|why| DocumentError::Write {
                        place: "standard output".to_owned(),
                        why,
                    }),
                }
            }
            Self::ManPages(dir) => {
                write_pages(command.clone(), &dir).map_err(|why| DocumentError::Write {
                    place: dir.display().to_string(),
                    why,
                })
            }
        }
    }
}

fn write_pages(command: Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn asked(arguments: &[&str]) -> Result<Option<Asked>, String> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        Asked::read(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_stands_alone_asks_for_documents() {
        assert_eq!(asked(&[]), Ok(None));
        assert_eq!(asked(&["--n", "8"]), Ok(None));
        assert_eq!(asked(&["--name", "--completions"]), Ok(None));
        let zsh = Asked::Completions(Shell::Zsh);
        assert_eq!(asked(&["--completions", "zsh"]), Ok(Some(zsh)));
        for bad in [
            &["--completions"][..],
            &["--completions", "tcsh"],
            &["--completions", "zsh", "x"],
        ] {
            assert!(asked(bad).unwrap_err().contains("bash"), "{bad:?}");
        }
        assert!(asked(&["--man-pages"]).unwrap_err().contains("directory"));
    }

    #[test]
    fn every_command_gets_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let inner = Command::new("inner").about("Does the inner work");
        let mut command = Command::new("program")
            .arg(Arg::new("n").long("n").help("The board's side"))
            .subcommand(inner);
        let pages = dir.path().join("man1");
        Asked::ManPages(pages.clone()).write(&mut command).unwrap();
        for (page, part) in [
            ("program.1", "The board"),
            ("program-inner.1", "inner work"),
        ] {
            let text = fs::read_to_string(pages.join(page)).unwrap();
            assert!(text.contains(part), "{text}");
        }
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Asked::ManPages(file).write(&mut command).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
}
