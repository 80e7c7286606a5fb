//! Documents of the programs: help with examples, shell completions, man pages.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    path::Path,
};

use clap::{Command, CommandFactory, Error, FromArgMatches, ValueEnum as _, error::ErrorKind};
use clap_complete::Shell;

use crate::environment::{FlagDependency, check_needs, with_environment};

/// Maximum width of `--help`, in columns.
const WIDTH: usize = 80;

/// End of `--help`: environment variables, completions and man pages.
const HELP: &str = "\
Environment:
  QUEENS_…    any flag by its name: QUEENS_DATA_DIR=/srv/queens is --data-dir,
              QUEENS_JSON=1 is --json; the command line takes precedence
  RUST_LOG    level of the log on stderr: error, warn, info (default), debug
  NO_COLOR    disable colors if set

More:
  --completions SHELL   print completions for bash, elvish, fish, powershell
                        or zsh: source <(PROGRAM --completions bash)
  --man-pages DIR       write a man page for each command into a directory";

/// A heading and the names of the subcommands that help lists below it.
pub type Group = (&'static str, &'static [&'static str]);

/// Adds the common end of `--help`, and a list of subcommands per group instead of one of all.
pub(crate) fn with_help(command: Command, groups: &[Group]) -> Command {
    let own = command.get_after_help().map_or_else(String::new, |own| format!("{own}\n\n"));
    let command = command.after_help(own + HELP).max_term_width(WIDTH);
    if groups.is_empty() {
        return command;
    }
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for &(heading, names) in groups {
        let members = names.iter().filter_map(|name| command.find_subcommand(name)).cloned();
        let mut group = Command::new("")
            .disable_help_flag(true)
            .disable_help_subcommand(true)
            .help_template("{all-args}")
            .max_term_width(WIDTH)
            .subcommand_help_heading(heading)
            .subcommands(members);
        template += &format!("{}\n", group.render_help().ansi());
    }
    let usage = format!("{} [OPTIONS] <COMMAND>", command.get_name());
    let mut shown = command
        .clone()
        .override_usage(usage)
        .help_template(template + "{all-args}{after-help}")
        .disable_help_subcommand(true)
        .mut_subcommands(|subcommand| subcommand.hide(true));
    command.override_help(shown.render_help())
}

/// Writes completions or man pages if requested; returns whether it did.
///
/// `--completions` and `--man-pages` stand alone, so required arguments of commands can be omitted.
pub(crate) fn write_documents(
    command: &mut Command,
    arguments: &[OsString],
) -> Result<bool, Error> {
    let [flag, values @ ..] = arguments else {
        return Ok(false);
    };
    let value = match values {
        [value] => Some(value),
        _ => None,
    };
    let (written, place) = match flag.to_str() {
        Some("--completions") => {
            let shell = value.and_then(|shell| Shell::from_str(shell.to_str()?, true).ok());
            let Some(shell) = shell else {
                let expected = "--completions takes one of bash, elvish, fish, powershell, zsh";
                return Err(command.error(ErrorKind::InvalidValue, expected));
            };
            (print_completions(command, shell), "standard output".to_owned())
        }
        Some("--man-pages") => {
            let Some(dir) = value.map(Path::new) else {
                return Err(command.error(ErrorKind::InvalidValue, "--man-pages takes a directory"));
            };
            let pages = || clap_mangen::generate_to(command.clone(), dir);
            (fs::create_dir_all(dir).and_then(|()| pages()), dir.display().to_string())
        }
        Some(_) | None => return Ok(false),
    };
    written.map(|()| true).map_err(|why| {
        let advice = "free some space or choose another place";
        Error::raw(ErrorKind::Io, format!("cannot write to {place}: {why}; {advice}\n"))
    })
}

fn print_completions(command: &mut Command, shell: Shell) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, command, name, &mut text);
    let mut out = io::stdout().lock();
    match out.write_all(&text).and_then(|()| out.flush()) {
        // The reader has closed the pipe.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Checks the variables of all flags, and the help and examples of all commands.
///
/// Every command needs examples that start with its name and parse, as the commands in the
/// documentation do. Help lines fit in 80 columns.
///
/// # Panics
/// If a check fails; the message lists all failures.
#[doc(hidden)]
pub fn check_examples<T: CommandFactory + FromArgMatches>(needs: &[FlagDependency]) {
    let bad = bad_examples::<T>(needs);
    assert!(bad.is_empty(), "{bad:#?}");
}

fn bad_examples<T: CommandFactory + FromArgMatches>(needs: &[FlagDependency]) -> Vec<String> {
    let parse = |example: &str| {
        let mut command = T::command();
        let matches = command.try_get_matches_from_mut(words(example))?;
        check_needs(&mut command, &matches, needs)?;
        T::from_arg_matches(&matches).map(|_| ())
    };
    let mut bad = Vec::new();
    let program = with_environment(T::command());
    for documented in documented(program.get_name()) {
        if let Err(error) = parse(&documented) {
            bad.push(format!("{documented}: {error}"));
        }
    }
    let mut remaining = vec![(program.get_name().to_owned(), program)];
    while let Some((name, command)) = remaining.pop() {
        for arg in command.get_arguments() {
            let Some(long) = arg.get_long() else { continue };
            let variable = format!("QUEENS_{}", long.replace('-', "_").to_uppercase());
            if arg.get_env() != Some(OsStr::new(&variable)) {
                bad.push(format!("{name}: no variable for --{long}"));
            }
        }
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let examples: Vec<_> = examples(&help).collect();
        if examples.is_empty() {
            bad.push(format!("{name}: no examples"));
        }
        let mut shown = command.clone().max_term_width(WIDTH);
        let shown = shown.render_long_help().to_string();
        let wide = shown.lines().filter(|line| line.chars().count() > WIDTH);
        bad.extend(wide.map(|line| format!("{name}: more than {WIDTH} columns: {line}")));
        for example in examples {
            if !example.starts_with(&name) {
                bad.push(format!("{name}: another command's example: {example}"));
            }
            if let Err(error) = parse(example) {
                bad.push(format!("{example}: {error}"));
            }
        }
        let inner = command.get_subcommands().cloned();
        remaining.extend(inner.map(|inner| (format!("{name} {}", inner.get_name()), inner)));
    }
    bad
}

/// Returns the command lines of a program in the pages of the documentation.
fn documented(program: &str) -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = fs::read_dir(docs).expect("the documentation").map(|page| page.expect("a page"));
    let pages =
        pages.map(|page| page.path()).filter(|path| path.extension() == Some("md".as_ref()));
    let mut lines = Vec::new();
    for page in pages {
        let text = fs::read_to_string(page).expect("a page is text").replace("\\\n", " ");
        let blocks = text.split("```").skip(1).step_by(2);
        let typed = blocks.flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or(line));
        let of_program = |line: &&str| line.split_whitespace().next() == Some(program);
        lines.extend(typed.filter(of_program).map(str::to_owned));
    }
    lines
}

/// Returns the command lines below `Examples:`; descriptions are indented further.
fn examples(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
}

/// Splits a command line as a shell does, up to a redirection.
fn words(line: &str) -> Vec<&str> {
    let line = line.split(" > ").next().unwrap_or_default();
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn bad_examples_are_found() {
        #[derive(clap::Parser)]
        #[command(name = "program", after_help = "Examples:\n  program show 1 > file\n      shows")]
        enum Program {
            #[command(after_help = "Examples:\n  program show 'two words'\n\n  more")]
            Show { what: String },
            #[command(after_help = "Examples:\n  program show 1\n  program hide\n      hides")]
            Hide { what: String },
            /// Has no example.
            Turn,
        }
        let bad = bad_examples::<Program>(&[]);
        let first_lines = bad.iter().filter_map(|text| text.lines().next());
        assert_eq!(
            Vec::from_iter(first_lines),
            [
                "program turn: no examples",
                "program hide: another command's example: program show 1",
                "program hide: error: the following required arguments were not provided:",
            ]
        );
    }

    #[test]
    fn documents_are_requested_by_flags_that_stand_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let pages = dir.path().join("man1");
        let inner = Command::new("inner").about("Does the inner work");
        let mut command = Command::new("program")
            .arg(Arg::new("n").long("n").help("The board's side"))
            .subcommand(inner);
        let mut request = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
            write_documents(&mut command, &arguments).map_err(|error| error.to_string())
        };
        for none in [&[][..], &["--n", "8"], &["--name", "--completions"]] {
            assert_eq!(request(none), Ok(false));
        }
        let file = dir.path().join("file");
        for (bad, part) in [
            (&["--completions"][..], "bash"),
            (&["--completions", "tcsh"], "bash"),
            (&["--completions", "zsh", "x"], "bash"),
            (&["--man-pages"], "directory"),
            (&["--man-pages", file.to_str().unwrap()], "file: "),
        ] {
            assert!(request(bad).unwrap_err().contains(part), "{bad:?}");
        }
        assert_eq!(request(&["--man-pages", pages.to_str().unwrap()]), Ok(true));
        for (page, part) in [("program.1", "The board"), ("program-inner.1", "inner work")] {
            let text = fs::read_to_string(pages.join(page)).unwrap();
            assert!(text.contains(part), "{text}");
        }
    }
}
