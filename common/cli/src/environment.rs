//! Man pages, shell completions, and flags from `QUEENS_…` environment variables.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    path::Path,
    process,
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, Error, FromArgMatches, ValueEnum as _,
    builder::{BoolishValueParser, StyledStr},
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use clap_complete::Shell;

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

/// Flags that require another flag, by the names of their fields.
#[derive(Clone, Copy, Debug)]
pub struct FlagDependency {
    pub flags: &'static [&'static str],
    pub other: &'static str,
}

/// A heading and the names of the subcommands that help lists below it.
pub type Group = (&'static str, &'static [&'static str]);

/// Parses command line and environment; exits on invalid usage and for `--help`.
///
/// Help lists the subcommands in `groups`, or all in one list without groups.
pub fn read<T: CommandFactory + FromArgMatches>(needs: &[FlagDependency], groups: &[Group]) -> T {
    let mut command = with_environment(T::command()).max_term_width(WIDTH);
    let own = command.get_after_help().map_or_else(String::new, |own| format!("{own}\n\n"));
    command = grouped(command.after_help(own + HELP), groups);
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    match write_documents(&mut command, &arguments) {
        Ok(false) => {}
        Ok(true) => process::exit(0),
        Err(error) => {
            // Errors are ignored: stderr may be closed.
            let _ = error.print();
            process::exit(if error.kind() == ErrorKind::Io { 1 } else { 2 });
        }
    }
    warn_of_unknown_variables(&command);
    let read = command.try_get_matches_from_mut(env::args_os());
    let read = read.and_then(|matches| {
        check_needs(&mut command, &matches, needs)?;
        T::from_arg_matches(&matches)
    });
    read.unwrap_or_else(|error| with_source(error.format(&mut command)).exit())
}

/// Replaces the list of subcommands in the help of `command` with one per group.
fn grouped(command: Command, groups: &[Group]) -> Command {
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

/// Adds an environment variable to every flag of `command` and its subcommands.
fn with_environment(command: Command) -> Command {
    let set = |name: &str| variable(name).is_some();
    command
        .mut_args(|arg| match arg.get_long() {
            Some(long) if is_overridden(long, is_typed, set) => arg,
            Some(_) | None => from_environment(arg),
        })
        .mut_subcommands(with_environment)
}

/// Returns whether a flag's environment variable is ignored.
///
/// Typed flags take precedence, and `QUEENS_JOIN` over `QUEENS_COORDINATOR`.
fn is_overridden(long: &str, typed: impl Fn(&str) -> bool, set: impl Fn(&str) -> bool) -> bool {
    match long {
        "join" => ["coordinator", "data-dir"].into_iter().any(typed),
        "coordinator" => ["join", "data-dir"].into_iter().any(typed) || set(&variable_of("join")),
        _ => false,
    }
}

fn from_environment(arg: Arg) -> Arg {
    let Some(name) = arg.get_long().map(variable_of) else {
        return arg;
    };
    if env::var_os(&name).is_some_and(|value| value.is_empty()) {
        return arg;
    }
    let arg = arg.env(name).hide_env(true);
    match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    }
}

/// Returns an environment variable; an empty one counts as unset, as Compose and Helm pass them.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the variable of a flag: `QUEENS_DATA_DIR` for `data-dir`.
fn variable_of(long: &str) -> String {
    format!("QUEENS_{}", long.to_uppercase().replace('-', "_"))
}

/// Warns of probably misspelled variables; others may belong to other programs.
fn warn_of_unknown_variables(command: &Command) {
    let known = variables(command);
    for (name, _) in env::vars_os() {
        if let Some(meant) = name.to_str().and_then(|name| misspelled(name, &known)) {
            // Errors are ignored: stderr may be closed.
            let _ = writeln!(
                io::stderr(),
                "warning: unknown variable {}: did you mean {meant}?",
                name.display()
            );
        }
    }
}

/// Returns the variables of all flags of `command` and its subcommands.
fn variables(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(Arg::get_long).map(variable_of);
    own.chain(command.get_subcommands().flat_map(variables)).collect()
}

/// Returns the known variable that `name` probably misspells.
fn misspelled<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    const PREFIX: &str = "QUEENS_";
    let flag = name.strip_prefix(PREFIX)?;
    if known.iter().any(|known| known == name) {
        return None;
    }
    let letters = |flag: &str| flag.replace('_', "");
    known.iter().map(String::as_str).find(|known| {
        let known = &known[PREFIX.len()..];
        // Short names are similar to each other: JOIN is not a misspelled JSON.
        let most = (flag.len() / 3).min(2);
        letters(known) == letters(flag) || strsim::damerau_levenshtein(known, flag) <= most
    })
}

/// Rejects typed flags without effect; variables may be meant for other programs.
fn check_needs(
    command: &mut Command,
    matches: &ArgMatches,
    needs: &[FlagDependency],
) -> Result<(), Error> {
    let typed = |flag| matches.value_source(flag) == Some(ValueSource::CommandLine);
    let given = |flag| matches!(matches.value_source(flag), Some(source) if source != ValueSource::DefaultValue);
    if let Some((name, inner)) = matches.subcommand() {
        if let Some(subcommand) = command.find_subcommand_mut(name) {
            check_needs(subcommand, inner, needs)?;
        }
        let typed = |id: &str| inner.value_source(id) == Some(ValueSource::CommandLine);
        // Global flags that a command does not use are hidden from its help.
        let unused = command.find_subcommand(name).and_then(|command| {
            let unused = |arg: &&Arg| arg.is_hide_set() && arg.is_global_set();
            let mut unused = command.get_arguments().filter(unused);
            unused.find(|arg| typed(arg.get_id().as_str())).map(ToString::to_string)
        });
        if let Some(flag) = unused {
            return Err(command.error(
                ErrorKind::ArgumentConflict,
                format!("{flag} has no effect on `{name}`, which needs no coordinator"),
            ));
        }
    }
    // Flags differ between subcommands.
    let has = |flag: &str| command.get_arguments().any(|arg| arg.get_id() == flag);
    for FlagDependency { flags, other } in needs.iter().filter(|need| has(need.other)) {
        if let Some(flag) = flags.iter().find(|flag| has(flag) && typed(flag))
            && !given(other)
        {
            let [flag, other] = [flag, other].map(|field| field.replace('_', "-"));
            return Err(command.error(
                ErrorKind::MissingRequiredArgument,
                format!("--{flag} has no effect without --{other}"),
            ));
        }
    }
    Ok(())
}

/// Adds the source of an invalid value that is not on the command line.
fn with_source(mut error: Error) -> Error {
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(usage)) => usage.split([' ', '=']).next().map(str::to_owned),
        _ => None,
    };
    let Some(long) = flag.as_deref().and_then(|flag| flag.strip_prefix("--")) else {
        return error;
    };
    let name = variable_of(long);
    if !is_typed(long) && env::var_os(&name).is_some() {
        let tip = format!("the value comes from the environment variable {name}");
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// Returns whether a flag is on the command line.
pub fn is_typed(long: &str) -> bool {
    env::args_os().any(|argument| {
        let argument = argument.to_string_lossy();
        let name = argument.strip_prefix("--").and_then(|rest| rest.split('=').next());
        name == Some(long)
    })
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

/// Writes completions or man pages if requested; returns whether it did.
///
/// `--completions` and `--man-pages` stand alone, so required arguments of commands can be omitted.
fn write_documents(command: &mut Command, arguments: &[OsString]) -> Result<bool, Error> {
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

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn typed_flags_take_precedence_over_variables_that_they_exclude() {
        let ignored = |typed: &[&str], set: &[&str]| {
            let is_ignored = |flag: &&str| {
                is_overridden(flag, |long| typed.contains(&long), |name| set.contains(&name))
            };
            Vec::from_iter(["coordinator", "join", "n"].into_iter().filter(is_ignored))
        };
        let both = ["QUEENS_COORDINATOR", "QUEENS_JOIN"];
        assert_eq!(ignored(&["coordinator"], &both), ["coordinator", "join"]);
        assert_eq!(ignored(&["join"], &both), ["coordinator"]);
        assert_eq!(ignored(&[], &both), ["coordinator"]);
        assert_eq!(ignored(&["data-dir"], &both), ["coordinator", "join"]);
        assert!(ignored(&["n"], &both[..1]).is_empty());
    }

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
    fn a_flag_without_the_flag_that_it_requires_is_refused() {
        let read = |arguments: &[&str]| {
            let mut command = Command::new("program")
                .arg(Arg::new("memory_size").long("memory-size").default_value("1"))
                .arg(Arg::new("local").long("local").action(ArgAction::SetTrue));
            let matches = command.try_get_matches_from_mut(arguments)?;
            let needs = [FlagDependency { flags: &["memory_size"], other: "local" }];
            check_needs(&mut command, &matches, &needs)
        };
        assert!(read(&["program"]).is_ok());
        assert!(read(&["program", "--memory-size", "3", "--local"]).is_ok());
        let refused = read(&["program", "--memory-size", "3"]).unwrap_err();
        assert!(refused.to_string().contains("--memory-size has no effect without --local"));
    }

    #[test]
    fn a_misspelled_variable_is_recognized() {
        let known = ["QUEENS_DATA_DIR", "QUEENS_JSON", "QUEENS_N", "QUEENS_THREADS"];
        let known = known.map(str::to_owned);
        for (name, meant) in [
            ("QUEENS_DATADIR", Some("QUEENS_DATA_DIR")),
            ("QUEENS_THRAEDS", Some("QUEENS_THREADS")),
            ("QUEENS_JSNO", Some("QUEENS_JSON")),
            ("QUEENS_DATA_DIR", None),
            ("QUEENS_M", None),
            ("QUEENS_JOIN", None),
            ("QUEENS_COORDINATOR", None),
            ("DATADIR", None),
        ] {
            assert_eq!(misspelled(name, &known), meant, "{name}");
        }
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
