//! Command lines, and flags from `QUEENS_…` environment variables.

use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    process,
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, Error, FromArgMatches,
    builder::{BoolishValueParser, StyledStr},
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use crate::documents::{Group, with_help, write_documents};

/// Flags that require another flag, by the names of their fields.
#[derive(Clone, Copy, Debug)]
pub struct FlagDependency {
    pub flags: &'static [&'static str],
    pub other: &'static str,
}

/// Parses command line and environment; exits on invalid usage and for `--help`.
///
/// Help lists the subcommands in `groups`, or all in one list without groups.
pub fn read<T: CommandFactory + FromArgMatches>(needs: &[FlagDependency], groups: &[Group]) -> T {
    let mut command = with_help(with_environment(T::command()), groups);
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

/// Adds an environment variable to every flag of `command` and its subcommands.
pub(crate) fn with_environment(command: Command) -> Command {
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
pub(crate) fn check_needs(
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

#[cfg(test)]
mod tests {
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
}
