//! What the programs print and how they exit, for good input and for bad.

mod directories;
mod queensctl;
mod results;
mod usage;

use std::process::Command;

use serde_json::Value;
use tests::{
    binaries::binaries,
    process::{End, Process},
};

fn coordinator(arguments: &[&str], dir: &tempfile::TempDir) -> End {
    let mut command = Command::new(&binaries().coordinator);
    command.args(arguments).current_dir(dir.path());
    Process::run("the coordinator", &mut command)
}

fn queensctl(arguments: &[&str]) -> End {
    Process::run(
        "queensctl",
        Command::new(&binaries().queensctl).args(arguments),
    )
}

/// Ended with this code and one error line that holds all of `parts`, and printed no result.
fn check_refused(end: &End, code: i32, parts: &[&str]) {
    assert_eq!(end.code, Some(code), "{end:#?}");
    assert_eq!(end.stdout, "", "{end:#?}");
    let errors: Vec<_> = end
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    let [error] = errors.as_slice() else {
        panic!("one line says what is wrong: {end:#?}");
    };
    for part in parts {
        assert!(error.contains(part), "'{part}' in: {error}");
    }
    assert!(!end.stderr.contains("panicked"), "{end:#?}");
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}
