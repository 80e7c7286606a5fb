//! Flags from the environment: `--data-dir` is also `QUEENS_DATA_DIR`.

use std::{
    env,
    ffi::OsStr,
    io::{self, Write as _},
    process,
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, Error, FromArgMatches,
    builder::{BoolishValueParser, StyledStr},
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use crate::documents::{self, Asked};

/// Columns of `--help`, also where there is room for more: those of a terminal of the usual width.
const WIDTH: usize = 80;

/// What the end of `--help` says of it.
const HELP: &str = "\
Environment:
  QUEENS_…    every flag by its name: QUEENS_DATA_DIR=/srv/queens is --data-dir,
              QUEENS_JSON=1 is --json; what the command line says goes first
  RUST_LOG    what is logged to stderr: error, warn, info (the default), debug
  NO_COLOR    set to anything: no colours";

/// A flag that means nothing without another one.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The flag's field.
    pub flag: &'static str,
    /// The field of the flag that it needs.
    pub other: &'static str,
}

/// Reads the command line, and from the environment what it leaves open. Ends the process where they
/// make no sense, or help was asked for.
pub fn read<T: CommandFactory + FromArgMatches>(needs: &[Needs]) -> T {
    let mut command = with_environment(T::command()).max_term_width(WIDTH);
    let help = match command.get_after_help() {
        Some(help) => format!("{help}\n\n{HELP}\n\n{}", documents::HELP),
        None => format!("{HELP}\n\n{}", documents::HELP),
    };
    command = command.after_help(help);
    write_documents(&mut command);
    let read = command.try_get_matches_from_mut(env::args_os());
    let read = read.and_then(|matches| {
        check_needs(&mut command, &matches, needs)?;
        T::from_arg_matches(&matches)
    });
    read.unwrap_or_else(|error| with_source(error.format(&mut command)).exit())
}

/// Writes the documents that the command line asks for, if it does, and ends the process then.
fn write_documents(command: &mut Command) {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    match Asked::read(&arguments) {
        Ok(None) => {}
        Err(bad) => command.error(ErrorKind::InvalidValue, bad).exit(),
        Ok(Some(asked)) => match asked.write(command) {
            Ok(()) => process::exit(0),
            Err(error) => {
                // Nobody may be there to read it.
                let _ = writeln!(io::stderr(), "error: {error}");
                process::exit(1);
            }
        },
    }
}

/// Lets every flag of `command` and of its subcommands be given in the environment too.
pub fn with_environment(command: Command) -> Command {
    let given = Given {
        typed: &|long| env::args_os().any(|argument| is_flag(&argument, long)),
        set: &|name| env::var_os(name).is_some(),
    };
    given.attach(command)
}

/// Flags that exclude each other: where both stand in the environment, the first goes before.
const EXCLUSIVE: [[&str; 2]; 1] = [["join", "coordinator"]];

/// What a process was started with.
struct Given<'a> {
    /// Whether a flag stands on the command line.
    typed: &'a dyn Fn(&str) -> bool,
    /// Whether a variable stands in the environment.
    set: &'a dyn Fn(&str) -> bool,
}

impl Given<'_> {
    fn attach(&self, command: Command) -> Command {
        command
            .mut_args(|arg| match arg.get_long() {
                Some(long) if self.passes_over(long) => arg,
                Some(_) | None => from_environment(arg),
            })
            .mut_subcommands(|command| self.attach(command))
    }

    /// Whether the variable of a flag does not count, because of a flag that excludes it.
    fn passes_over(&self, long: &str) -> bool {
        EXCLUSIVE.iter().any(|[first, second]| {
            let after_first = (self.typed)(first) || (self.set)(&variable(first));
            (long == *first && (self.typed)(second)) || (long == *second && after_first)
        })
    }
}

fn from_environment(arg: Arg) -> Arg {
    let Some(name) = arg.get_long().map(variable) else {
        return arg;
    };
    let arg = arg.env(name).hide_env(true);
    match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    }
}

/// `data-dir` becomes `QUEENS_DATA_DIR`.
fn variable(long: &str) -> String {
    format!("QUEENS_{}", long.to_uppercase().replace('-', "_"))
}

/// Refuses what was typed and would have no effect. What stands in the environment may be meant for
/// another program, and is passed over.
fn check_needs(command: &mut Command, matches: &ArgMatches, needs: &[Needs]) -> Result<(), Error> {
    let typed = |flag| matches.value_source(flag) == Some(ValueSource::CommandLine);
    let given = |flag| matches!(matches.value_source(flag), Some(source) if source != ValueSource::DefaultValue);
    if let Some((_, inner)) = matches.subcommand() {
        check_needs(command, inner, needs)?;
    }
    // Each subcommand knows flags of its own.
    let known = |needs: &&Needs| matches.try_contains_id(needs.flag).is_ok();
    for Needs { flag, other } in needs.iter().filter(known) {
        if typed(flag) && !given(other) {
            let [flag, other] = [flag, other].map(|field| field.replace('_', "-"));
            return Err(command.error(
                ErrorKind::MissingRequiredArgument,
                format!("--{flag} has no effect without --{other}"),
            ));
        }
    }
    Ok(())
}

/// Adds where a bad value comes from, if it does not stand on the command line.
fn with_source(mut error: Error) -> Error {
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(usage)) => usage.split([' ', '=']).next().map(str::to_owned),
        _ => None,
    };
    let Some(long) = flag.as_deref().and_then(|flag| flag.strip_prefix("--")) else {
        return error;
    };
    let typed = env::args_os().any(|argument| is_flag(&argument, long));
    let name = variable(long);
    if !typed && env::var_os(&name).is_some() {
        let tip = format!("the value is that of the environment variable {name}");
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

fn is_flag(argument: &OsStr, long: &str) -> bool {
    let argument = argument.to_string_lossy();
    let name = argument
        .strip_prefix("--")
        .and_then(|rest| rest.split('=').next());
    name == Some(long)
}

/// For tests: every flag of a program and of its commands can be given in the environment, by its name.
///
/// # Panics
/// If one cannot.
#[doc(hidden)]
pub fn check_flags<T: CommandFactory>() {
    let mut left = vec![with_environment(T::command())];
    let mut flags = 0;
    while let Some(command) = left.pop() {
        for arg in command.get_arguments() {
            let Some(long) = arg.get_long() else { continue };
            let expected = format!("QUEENS_{}", long.replace('-', "_").to_uppercase());
            let name = arg.get_env().map(|name| name.to_string_lossy());
            assert_eq!(name.as_deref(), Some(expected.as_str()), "--{long}");
            flags += 1;
        }
        left.extend(command.get_subcommands().cloned());
    }
    assert!(flags > 5);
}

/// For tests: the examples at the end of a program's `--help`, and of those of its commands, are right.
/// There are some, each begins with its command, the program takes it, and it fits a terminal.
///
/// # Panics
/// If one is not, with all that are not.
#[doc(hidden)]
pub fn check_examples<T: CommandFactory + FromArgMatches>(needs: &[Needs]) {
    let bad = bad_examples::<T>(needs);
    assert!(bad.is_empty(), "{bad:#?}");
}

fn bad_examples<T: CommandFactory + FromArgMatches>(needs: &[Needs]) -> Vec<String> {
    let takes = |example: &str| {
        let mut command = T::command();
        let matches = command.try_get_matches_from_mut(words(example))?;
        check_needs(&mut command, &matches, needs)?;
        T::from_arg_matches(&matches).map(|_| ())
    };
    let mut bad = Vec::new();
    let mut left = vec![(T::command().get_name().to_owned(), T::command())];
    while let Some((name, command)) = left.pop() {
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
                bad.push(format!("{name}: another command's: {example}"));
            }
            if let Err(error) = takes(example) {
                bad.push(format!("{example}: {error}"));
            }
        }
        let inner = command.get_subcommands().cloned();
        left.extend(inner.map(|inner| (format!("{name} {}", inner.get_name()), inner)));
    }
    bad
}

/// The lines to type below `Examples:`; what they do is indented further.
fn examples(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
}

/// A command line as a shell takes it apart, up to where its output goes.
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
    use super::*;

    #[test]
    fn what_is_typed_goes_before_what_it_excludes_in_the_environment() {
        let passed_over = |typed: &[&str], set: &[&str]| {
            let given = Given {
                typed: &|long| typed.contains(&long),
                set: &|name| set.contains(&name),
            };
            let flags = ["coordinator", "join", "n"].into_iter();
            Vec::from_iter(flags.filter(|flag| given.passes_over(flag)))
        };
        let both = ["QUEENS_COORDINATOR", "QUEENS_JOIN"];
        assert_eq!(
            passed_over(&["coordinator"], &both),
            ["coordinator", "join"]
        );
        assert_eq!(passed_over(&["join"], &both), ["coordinator"]);
        assert_eq!(passed_over(&[], &both), ["coordinator"]);
        assert!(passed_over(&["n"], &both[..1]).is_empty());
    }

    #[test]
    fn bad_examples_are_found() {
        #[derive(clap::Parser)]
        #[command(
            name = "program",
            after_help = "Examples:\n  program show 1 > file\n      shows"
        )]
        enum Program {
            #[command(after_help = "Examples:\n  program show 'two words'\n\n  more")]
            Show { what: String },
            #[command(after_help = "Examples:\n  program show 1\n  program hide\n      hides")]
            Hide { what: String },
            /// Nobody is shown how.
            Turn,
        }
        let bad = bad_examples::<Program>(&[]);
        let first_lines = bad.iter().filter_map(|text| text.lines().next());
        assert_eq!(
            Vec::from_iter(first_lines),
            [
                "program turn: no examples",
                "program hide: another command's: program show 1",
                "program hide: error: the following required arguments were not provided:",
            ]
        );
    }

    #[test]
    fn a_flag_without_the_one_it_needs_is_refused() {
        let read = |arguments: &[&str]| {
            let mut command = Command::new("program")
                .arg(
                    Arg::new("memory_size")
                        .long("memory-size")
                        .default_value("1"),
                )
                .arg(Arg::new("local").long("local").action(ArgAction::SetTrue));
            let matches = command.try_get_matches_from_mut(arguments)?;
            let needs = [Needs {
                flag: "memory_size",
                other: "local",
            }];
            check_needs(&mut command, &matches, &needs)
        };
        assert!(read(&["program"]).is_ok());
        assert!(read(&["program", "--memory-size", "3", "--local"]).is_ok());
        let refused = read(&["program", "--memory-size", "3"]).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("--memory-size has no effect without --local")
        );
    }
}
