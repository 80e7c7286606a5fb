//! Data directories: unusable ones, those of many runs, those that are in use, and going on.

use std::{fs, process::Command};

use serde_json::Value;
use tests::{
    binaries::binaries,
    cluster::{Cluster, result},
    process::Process,
};

use super::{check_refused, coordinator};

#[test]
fn data_directories_that_cannot_be_used_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let local = ["--n", "8", "--local", "--listen", "127.0.0.1:0"];
    let with_dir = |data: &str, arguments: &[&str]| {
        let arguments = [arguments, &["--data-dir", data]].concat();
        coordinator(&arguments, &dir)
    };
    // A file is no directory, and nothing can be made below one.
    fs::write(dir.path().join("file"), "text").unwrap();
    check_refused(&with_dir("file", &local), 1, &["file", "directory"]);
    check_refused(&with_dir("file/below", &local), 1, &["file/below"]);
    // Somebody else's files.
    fs::create_dir(dir.path().join("foreign")).unwrap();
    fs::write(dir.path().join("foreign/thesis.txt"), "text").unwrap();
    check_refused(&with_dir("foreign", &local), 1, &["foreign", "thesis.txt"]);
    // No run at all, and none asked for.
    let wait = ["--exit-when-done", "--listen", "127.0.0.1:0"];
    check_refused(&with_dir("nothing", &wait), 1, &["nothing", "--n"]);
}

#[test]
fn one_data_directory_holds_any_number_of_runs() {
    let dir = tempfile::tempdir().unwrap();
    let count = |arguments: &[&str]| {
        let local = ["--local", "--json", "--listen", "127.0.0.1:0"];
        result(&coordinator(&[arguments, &local].concat(), &dir))
    };
    let name = |result: &Value| result["run"].as_str().unwrap().to_owned();
    let eight = count(&["--n", "8"]);
    let nine = count(&["--n", "9"]);
    let by_frames = count(&["--n", "8", "--method", "frames"]);
    let smaller_tasks = count(&["--n", "8", "--task-cost", "3"]);
    for (result, solutions) in [
        (&eight, "92"),
        (&nine, "352"),
        (&by_frames, "92"),
        (&smaller_tasks, "92"),
    ] {
        assert_eq!(result["solutions"], solutions);
    }
    // The same command line means the same run.
    assert_eq!(name(&nine), name(&count(&["--n", "9"])));
    let frames = ["--n", "8", "--method", "frames"];
    assert_eq!(name(&by_frames), name(&count(&frames)));
    let again = count(&["--n", "9", "--again"]);
    assert_eq!(again["solutions"], "352");
    let mut names: Vec<_> = [&eight, &nine, &by_frames, &smaller_tasks, &again]
        .into_iter()
        .map(name)
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5, "each is a run of its own");
}

#[test]
fn a_second_coordinator_on_one_data_directory_is_refused() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _first = cluster.coordinator();
    let dir = tempfile::tempdir().unwrap();
    let data = cluster.data_dir();
    let data = data.to_str().unwrap();
    let arguments = ["--n", "16", "--listen", "127.0.0.1:0", "--data-dir", data];
    check_refused(
        &coordinator(&arguments, &dir),
        1,
        &["in use by another process"],
    );
    // Reading is another matter.
    let verified = cluster.verify();
    assert_eq!(verified.code, Some(0), "{verified:#?}");
    assert!(
        verified
            .stdout
            .contains("a coordinator has the directory open"),
        "{verified:#?}"
    );
}

#[test]
fn an_interrupted_local_run_resumes() {
    let run = [
        "--n",
        "16",
        "--prefix",
        "first-rows",
        "--task-cost",
        "10000",
    ];
    let local = [
        "--local",
        "--threads",
        "1",
        "--kernel",
        "scalar",
        "--memory",
        "1GiB",
    ];
    let cluster = Cluster::new(&[run.as_slice(), &local].concat());
    let first = cluster.coordinator();
    first.stderr_line("'local'");
    first.signal("INT");
    let end = first.end();
    assert_eq!(end.code, Some(130), "{end:#?}");
    assert!(end.stderr.contains("the same command resumes"), "{end:#?}");
    let partial: Value = serde_json::from_str(&end.stdout).unwrap();
    assert_eq!(partial["complete"], false, "{end:#?}");
    assert_eq!(partial["solutions"], Value::Null, "no result: {end:#?}");
    assert!(partial["solutions_so_far"].is_string(), "{end:#?}");
    assert_eq!(
        result(&cluster.coordinator().end())["solutions"],
        "14772512"
    );
}

/// Asked for otherwise than before, a board is another run; that the earlier one goes on is said.
#[test]
fn a_run_that_is_open_beside_the_one_asked_for_is_named() {
    let cluster = Cluster::new(&["--n", "16"]);
    let first = cluster.coordinator();
    first.signal("INT");
    assert_eq!(first.end().code, Some(130));
    let by_rows = |arguments: &[&str]| {
        let mut command = Command::new(&binaries().coordinator);
        command
            .args(["--n", "16", "--method", "rows"])
            .args(arguments)
            .args(["--no-http", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(cluster.data_dir());
        Process::start("the coordinator", &mut command)
    };
    let second = by_rows(&[]);
    let line = second.stderr_line("  also open: run ");
    assert!(line.ends_with(", N = 16, method frames"), "{line}");
    drop(second.kill());
    by_rows(&["--again"]).stderr_line("  also open: 2 runs");
}
