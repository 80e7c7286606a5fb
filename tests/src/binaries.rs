//! The real programs, built once for all tests of a process.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// Where the programs are.
#[derive(Debug)]
pub struct Binaries {
    /// `coordinator`.
    pub coordinator: PathBuf,
    /// `worker`.
    pub worker: PathBuf,
    /// `queensctl`.
    pub queensctl: PathBuf,
    /// The example of a client in Rust.
    pub example: PathBuf,
}

/// As the test was built.
const FEATURES: &[&str] = match (cfg!(feature = "postgres"), cfg!(feature = "archive")) {
    (true, true) => &[
        "--features",
        "tests/postgres,tests/archive,queensctl/postgres,queensctl/archive",
    ],
    (true, false) => &["--features", "tests/postgres,queensctl/postgres"],
    (false, true) => &["--features", "tests/archive,queensctl/archive"],
    (false, false) => &[],
};

/// Builds the programs in the profile of the running test, next to it: a test may be run alone,
/// without anything else of the workspace being built before. QUEENS_PROGRAMS names a directory that
/// holds them already: packaged ones, or those of a long test that goes on while the code changes.
///
/// # Panics
/// If they do not build.
pub fn binaries() -> &'static Binaries {
    static BUILT: OnceLock<Binaries> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> Binaries {
    if let Some(dir) = env::var_os("QUEENS_PROGRAMS").map(PathBuf::from) {
        return Binaries {
            coordinator: dir.join("coordinator"),
            worker: dir.join("worker"),
            queensctl: dir.join("queensctl"),
            example: dir.join("submit-and-follow"),
        };
    }
    // TARGET/PROFILE/deps/TEST
    let test = env::current_exe().expect("a test has a path");
    let profile_dir = test.ancestors().nth(2).expect("a test lies in deps");
    let target_dir = profile_dir
        .parent()
        .expect("profiles lie in the target directory");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--bins",
            // A small test, for its own sake nothing: it has cargo choose features of the libraries as for
            // `cargo test --workspace`, which built them. Others would be all libraries once more.
            "--test",
            "book",
        ])
        .args(FEATURES)
        .args([
            "--message-format=json",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target_dir)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the programs do not build");
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let executable = |name: &str| {
        messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["target"]["name"] == name)
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .unwrap_or_else(|| panic!("cargo built no program {name}"))
    };
    Binaries {
        coordinator: executable("coordinator"),
        worker: executable("worker"),
        queensctl: executable("queensctl"),
        example: executable("submit-and-follow"),
    }
}
