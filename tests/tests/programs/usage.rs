//! Arguments, the environment and the documents that the programs write of themselves.

use std::{fs, net::TcpListener, process::Command};

use tests::{binaries::binaries, cluster::Cluster, process::Process};

use super::{check_refused, coordinator, queensctl};

#[test]
fn bad_arguments_are_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    for n in ["0", "33", "-1", "abc", "", "8.0", "300"] {
        let n_given = format!("N is {n},");
        let parts = [n_given.as_str(), "1 to 32"];
        check_refused(&coordinator(&["--n", n], &dir), 2, &parts);
        check_refused(&queensctl(&["submit", "--n", n]), 2, &parts);
    }
    let cases: [(&[&str], &[&str]); 13] = [
        (
            &["--n", "8", "--method", "magic"],
            &["magic", "auto, rows, frames"],
        ),
        (
            &["--n", "8", "--prefix", "zig"],
            &["zig", "first-rows, border"],
        ),
        (
            &["--n", "8", "--method", "frames", "--prefix", "border"],
            &["--prefix", "frames"],
        ),
        (
            &["--n", "8", "--task-cost", "0"],
            &["task cost", "at least 1"],
        ),
        (
            &["--n", "32", "--task-cost", "1"],
            &["4000000", "larger task cost"],
        ),
        (
            &["--n", "8", "--local", "--kernel", "magic"],
            &["magic", "avx512"],
        ),
        (
            &["--n", "8", "--local", "--memory", "1KiB"],
            &["N = 8 needs at least --memory"],
        ),
        (
            &[
                "--n",
                "28",
                "--local",
                "--threads",
                "2",
                "--memory",
                "400MiB",
            ],
            &["N = 28 needs at least --memory"],
        ),
        (
            &["--n", "8", "--local", "--memory", "100TiB"],
            &["'100TiB' is more than this process may use"],
        ),
        (
            &["--n", "8", "--local", "--threads", "0"],
            &["'0'", "threads"],
        ),
        (
            &["--n", "8", "--local", "--memory", "lots"],
            &["lots", "8GiB"],
        ),
        (
            &["--insecure", "--require-token"],
            &["--insecure", "--require-token"],
        ),
        (&["--listen", "nowhere"], &["nowhere", "HOST:PORT"]),
    ];
    for (arguments, parts) in cases {
        check_refused(&coordinator(arguments, &dir), 2, parts);
    }
    let foreign = if cfg!(target_arch = "x86_64") {
        "neon"
    } else {
        "avx2"
    };
    let arguments = ["--n", "8", "--local", "--kernel", foreign];
    check_refused(
        &coordinator(&arguments, &dir),
        2,
        &["lacks kernel", foreign, "scalar"],
    );
    for useless in [
        ["--method", "rows"],
        ["--task-cost", "5"],
        ["--threads", "2"],
        ["--kernel", "scalar"],
    ] {
        assert_eq!(
            coordinator(&useless, &dir).code,
            Some(2),
            "{useless:?} without its use"
        );
    }
    // Nothing of all that left a trace.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_port_in_use_is_said_and_touches_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let end = coordinator(&["--n", "8", "--listen", &address], &dir);
    check_refused(&end, 1, &[&address, "in use", "--listen"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_programs_document_themselves_for_shells_and_man() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("man1");
    let programs = binaries();
    for (program, word, pages) in [
        (&programs.coordinator, "--data-dir", &["coordinator.1"][..]),
        (&programs.worker, "--spool", &["worker.1", "worker-count.1"]),
        (
            &programs.queensctl,
            "submit",
            &["queensctl.1", "queensctl-submit.1"],
        ),
    ] {
        let run = |arguments: &[&str]| {
            let mut command = Command::new(program);
            Process::run("the program", command.args(arguments))
        };
        let end = run(&["--completions", "bash"]);
        assert_eq!(end.code, Some(0), "{end:#?}");
        assert!(end.stdout.contains(word), "{end:#?}");
        let script = dir.path().join("completions");
        fs::write(&script, &end.stdout).unwrap();
        let read = Command::new("bash").arg("-n").arg(&script).status();
        assert!(read.expect("bash runs").success(), "{}", end.stdout);
        check_refused(&run(&["--completions", "tcsh"]), 2, &["bash", "zsh"]);

        let end = run(&["--man-pages", man.to_str().unwrap()]);
        assert_eq!((end.code, end.stdout.as_str()), (Some(0), ""), "{end:#?}");
        for page in pages {
            let page = fs::read_to_string(man.join(page)).unwrap();
            assert!(page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"));
        }
    }
}

#[test]
fn what_is_typed_goes_before_the_environment() {
    let cluster = Cluster::new(&["--n", "16"]);
    let _coordinator = cluster.coordinator();
    let mut command = Command::new(&binaries().queensctl);
    command
        .args(["--coordinator", &cluster.url(), "runs"])
        .env("QUEENS_JOIN", "queens1-of-another-coordinator")
        .env("QUEENS_COORDINATOR", "http://127.0.0.1:1");
    let end = Process::run("queensctl", &mut command);
    assert_eq!(end.code, Some(0), "{end:#?}");
    // What is wrong in the environment is said to be there.
    let mut command = Command::new(&binaries().queensctl);
    command.arg("runs").env("QUEENS_TIMEOUT", "soon");
    let end = Process::run("queensctl", &mut command);
    check_refused(&end, 2, &["'soon'", "--timeout"]);
    assert!(end.stderr.contains("environment variable QUEENS_TIMEOUT"));
}
