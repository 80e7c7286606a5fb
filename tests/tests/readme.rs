//! README's commands, run in order and as written, in one directory, twice.
//!
//! What differs from a reader's terminal: the programs are those of this build instead of
//! `target/release`; `queens1-…` stands for what the coordinator printed; the port 7171, which may be taken here, is a free one; and
//! who would be left running for hours is ended by Ctrl-C once it has shown that it does its work.

use std::{fs, net::TcpListener, path::Path, process::Command};

use tests::{
    binaries::binaries,
    process::{End, Process},
};

/// Commands that build or test this very workspace. `.ci/run` runs them.
const ELSEWHERE: [&str; 2] = ["cargo test --workspace", "cargo build --release"];

/// The commands of all code blocks, without their comments.
fn commands() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(path).expect("there is a README");
    let blocks = readme.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| block.lines().skip(1));
    lines
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty() && !ELSEWHERE.contains(line))
        .map(str::to_owned)
        .collect()
}

/// A directory in which a reader types.
struct Reader {
    dir: tempfile::TempDir,
    port: u16,
}

impl Reader {
    fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            port: free.local_addr().expect("a bound port").port(),
        }
    }

    /// Types a line that begins with the join string which the coordinator printed for it.
    fn pastes(&self, line: &str, coordinator: &Process) -> Process {
        let program = line
            .strip_prefix("QUEENS_JOIN=queens1-… ")
            .expect("a line to paste");
        let command = program.strip_prefix("target/release/").expect("a program");
        let printed = command.strip_suffix(" --watch").unwrap_or(command);
        let printed = coordinator.stderr_line(&format!(" {printed}"));
        let join = printed.trim().strip_prefix("QUEENS_JOIN=");
        let join = join.and_then(|rest| rest.split(' ').next());
        let mut command = self.command(program);
        command.env("QUEENS_JOIN", join.expect("a join string"));
        Process::start(line, &mut command)
    }

    fn types(&self, line: &str) -> Process {
        Process::start(line, &mut self.command(line))
    }

    fn command(&self, line: &str) -> Command {
        let mut words = line.split(' ');
        let program = match words.next().expect("a command has a word") {
            "cargo" => {
                let to_be_run: Vec<_> = words.by_ref().take_while(|&word| word != "--").collect();
                let ["run", "--release", "-p", program] = to_be_run[..] else {
                    panic!("README runs something that is not known here: {line}");
                };
                program
            }
            path => path
                .strip_prefix("target/release/")
                .unwrap_or_else(|| panic!("README runs something that is not known here: {line}")),
        };
        let program = match program {
            "coordinator" => &binaries().coordinator,
            "worker" => &binaries().worker,
            "queensctl" => &binaries().queensctl,
            other => panic!("README runs a program that is not known here: {other}"),
        };
        let port = format!(":{}", self.port);
        let words = words.map(|word| word.replace(":7171", &port));
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.dir.path())
            .env_remove("XDG_STATE_HOME");
        command
    }
}

/// Ends a program as Ctrl-C does.
fn interrupt(process: Process) -> End {
    process.wait_for_signal_handlers();
    process.signal("INT");
    let end = process.end();
    assert_eq!(end.code, Some(130), "{end:#?}");
    end
}

/// The name of the run that a coordinator serves.
fn run_of(coordinator: &Process) -> String {
    let line = coordinator.stderr_line("listening on");
    let name = line.split(": run ").nth(1).expect("it names its run");
    name.to_owned()
}

#[test]
fn the_commands_of_the_readme_work_in_order_in_one_directory() {
    let commands = commands();
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let [first, coordinator, worker, watch, whole, sample] = commands[..] else {
        panic!("this test knows six commands of README: {commands:#?}");
    };
    let reader = Reader::new();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let end = reader.types(first).end();
        assert_eq!(end.code, Some(0), "{end:#?}");
        for part in [
            "N = 16: 14,772,512 solutions",
            "1,846,955 unique",
            "matches the known count",
        ] {
            assert!(end.stdout.contains(part), "'{part}' in {end:#?}");
        }

        let coordinator = reader.types(coordinator);
        runs.push(run_of(&coordinator));
        let worker = reader.pastes(worker, &coordinator);
        let watch = reader.pastes(watch, &coordinator);
        watch.stdout_line("N = 20");
        watch.stdout_line("working");
        let end = interrupt(watch);
        assert!(!end.stdout.contains("result"), "{end:#?}");
        let end = interrupt(worker);
        assert!(!end.stderr.contains("panicked"), "{end:#?}");
        let end = interrupt(coordinator);
        assert_eq!(end.stdout, "", "no result: {end:#?}");
        assert!(end.stderr.contains("the same command resumes"), "{end:#?}");
    }
    assert_eq!(runs[0], runs[1], "the second time goes on with the run");

    let end = reader.types(whole).end();
    assert_eq!(end.code, Some(0), "{end:#?}");
    assert!(
        end.stdout.replace(',', "").contains("666090624"),
        "{end:#?}"
    );
    let end = interrupt(reader.types(sample));
    assert!(!end.stderr.contains("panicked"), "{end:#?}");
}

#[test]
fn readme_says_what_its_first_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(path).unwrap();
    assert!(readme.contains("14,772,512 solutions, 1,846,955 unique"));
}
