//! The clients in `examples/`, against a real coordinator and a real worker.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tests::{
    binaries::binaries,
    cluster::Cluster,
    process::{End, Process},
};

/// Counts N = 13 through the client: what it ends with.
fn through(client: &dyn Fn(&str) -> Command) -> End {
    let cluster = Cluster::new(&[]);
    let _coordinator = cluster.serving();
    let _worker = cluster.worker("only");
    Process::run("the client", &mut client(&cluster.url()))
}

fn check(end: &End) {
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(end.stdout.starts_with("run "), "{end:#?}");
    assert!(
        end.stdout.ends_with("73712 solutions, 9233 unique"),
        "{end:#?}"
    );
    assert!(end.stderr.contains("100.0"), "{end:#?}");
}

#[test]
fn the_client_in_rust() {
    let end = through(&|url| {
        let mut command = Command::new(&binaries().example);
        command.args([url, "13"]);
        command
    });
    check(&end);
}

#[test]
fn the_client_in_python() {
    let Some(python) = python() else {
        eprintln!(
            "SKIPPED: the_client_in_python: no python3 with grpcio and grpcio-tools; install them with pip, or \
             name one in QUEENS_PYTHON"
        );
        return;
    };
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python/submit_and_follow.py");
    let end = through(&|url| {
        let mut command = Command::new(&python);
        let address = url.strip_prefix("http://").expect("a plain URL");
        command.arg(&script).args([address, "13"]);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    });
    check(&end);
}

/// A Python that has what the client needs.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("QUEENS_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| PathBuf::from("python3"));
    let mut command = Command::new(&python);
    let output = command
        .args(["-c", "import grpc, grpc_tools.protoc"])
        .output()
        .ok()?;
    output.status.success().then_some(python)
}
