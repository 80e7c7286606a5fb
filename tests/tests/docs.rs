//! The documentation: its links, the commands it shows, and the example clients.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use kit::Port;
use proto::connect::FOLDER;
use tests::{
    cluster::Cluster,
    process::{PATIENCE, Process, check_transcript, command, comparable},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a text file")
}

fn pages(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

/// Returns the targets of `[text](target)` outside of code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        }
        if code {
            continue;
        }
        // Every other piece between backquotes is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let targets = prose.split("](").skip(1);
        links.extend(targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
    links
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let head = line.trim_start_matches('#').trim().to_lowercase();
        let kept = head.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    heads.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut checked = 0;
    let folders = ["", "docs", "examples", "deploy"];
    for page in folders.into_iter().flat_map(pages) {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let there = fs::read_to_string(&target).unwrap();
                let found = anchors(&there).contains(&anchor.to_owned());
                assert!(found, "{}: {link}", page.display());
            }
            if page.parent().unwrap().ends_with("docs") {
                let inside = target
                    .canonicalize()
                    .unwrap()
                    .starts_with(root().join("docs").canonicalize().unwrap());
                assert!(inside, "{}: {link} is not part of the book", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} links");
}

#[test]
fn every_alert_has_a_row_in_the_troubleshooting_page_and_a_test() {
    let rules = read("deploy/monitoring/alerts.yml");
    let table = read("docs/troubleshooting.md");
    // promtool runs these tests, where it is installed.
    let tested = read("deploy/monitoring/alerts.test.yml");
    let mut alerts = 0;
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        let anchor = name.to_lowercase();
        let runbook = format!("runbook: docs/troubleshooting.md#{anchor}\n");
        assert!(rule.contains(&runbook), "{name} has no {runbook}");
        let line = format!("| <a id=\"{anchor}\"></a>`{name}` | ");
        assert!(table.contains(&line), "{name} has no line");
        let description = rule.lines().find(|line| line.contains("description: "));
        let (_, description) = description.and_then(|line| line.split_once(": ")).unwrap();
        assert!(tested.contains(description), "alerts.test.yml does not expect: {description}");
        alerts += 1;
    }
    assert!(alerts > 5, "{alerts} alerts");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = read("docs/SUMMARY.md");
    for page in pages("docs") {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "{name}");
    }
}

/// Runs each command with `--help`, which is printed only if its program accepts the rest.
#[test]
fn every_command_of_the_pages_is_accepted_by_its_program() {
    for page in pages("docs").into_iter().filter(|page| !page.ends_with("tour.md")) {
        let text = fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
            let mut words =
                line.split(" #").next().unwrap_or_default().split_whitespace().peekable();
            while words.next_if(|word| word.starts_with("QUEENS_")).is_some() {}
            if let Some(program @ ("coordinator" | "worker" | "queensctl")) = words.next() {
                Process::run(command(program, &[]).args(words).arg("--help")).ok();
            }
        }
    }
}

/// The clients in `examples/`, against a real coordinator and a real worker.
mod examples {
    use super::*;

    /// Counts N = 13 through a client that gets the folder with join strings.
    fn check(client: impl FnOnce(&Path) -> Command) {
        let cluster = Cluster::new(&[]);
        let _coordinator = cluster.serving();
        let client = Process::start(client(&cluster.data_dir().join(FOLDER)));
        // Without a worker the client prints advice.
        client.stderr_line("; no workers connected: start one with `worker`");
        let _worker = cluster.worker("only");
        let end = client.end().ok().logs(&["100.0"]);
        assert!(end.stdout.starts_with("run "), "{end:#?}");
        assert!(end.stdout.ends_with("73712 solutions, 9233 fundamental"), "{end:#?}");
    }

    #[test]
    fn the_client_in_rust() {
        check(|folder| {
            let mut command = command("submit-and-follow", &[]);
            command.arg(folder.join("operator.join")).arg("13");
            command
        });
    }

    #[test]
    fn the_client_in_python() {
        let Some(python) = python() else {
            return kit::not_tested(
                "the client in Python: no python3 with grpcio and grpcio-tools; install them with pip, or name one in \
                 QUEENS_PYTHON",
            );
        };
        let script = root().join("examples/python/submit_and_follow.py");
        check(|folder| {
            let mut command = Command::new(&python);
            command.arg(&script).arg(folder).arg("13").env("PYTHONDONTWRITEBYTECODE", "1");
            command
        });
    }

    /// Returns a Python with the modules that the client needs.
    fn python() -> Option<PathBuf> {
        let named = env::var_os("QUEENS_PYTHON").map(PathBuf::from);
        let is_named = named.is_some();
        let python = named.unwrap_or_else(|| PathBuf::from("python3"));
        let mut command = Command::new(&python);
        let output = command.args(["-c", "import grpc, grpc_tools.protoc"]).output();
        let has_modules = output.is_ok_and(|output| output.status.success());
        assert!(has_modules || !is_named, "QUEENS_PYTHON has no grpcio and grpcio-tools");
        has_modules.then_some(python)
    }
}

/// README's commands, run in order and as written, in one directory, twice.
///
/// Differences from a reader's terminal: programs of this build instead of `target/release`, the printed join
/// string for `queens1-…`, a free port for 7171, and Ctrl-C for programs that would run for hours.
mod readme {
    use super::*;

    /// Commands that build or test this workspace; `.ci/run` runs the tests and builds the programs in another profile.
    const ELSEWHERE: [&str; 2] = ["cargo test --workspace", "cargo build --release"];

    /// Returns the commands of all code blocks but those of output, without their comments.
    fn commands() -> Vec<String> {
        let readme = read("README.md");
        let blocks = readme.split("```").skip(1).step_by(2);
        let blocks = blocks.filter(|block| !block.starts_with("text"));
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
        port: Port,
    }

    impl Reader {
        /// Starts a command with the join string that the coordinator printed for it.
        fn pastes(&self, line: &str, coordinator: &Process) -> Process {
            let program = line.strip_prefix("QUEENS_JOIN=queens1-… ").expect("a join command");
            let command = program.strip_prefix("target/release/").expect("a program");
            let join = coordinator.join_for(command.strip_suffix(" --watch").unwrap_or(command));
            Process::start(self.command(program).env("QUEENS_JOIN", join))
        }

        fn types(&self, line: &str) -> Process {
            Process::start(self.command(line))
        }

        fn command(&self, line: &str) -> Command {
            let mut words = line.split(' ');
            let program = match words.next().expect("a command has a word") {
                "cargo" => {
                    let cargo: Vec<_> = words.by_ref().take_while(|&word| word != "--").collect();
                    match cargo[..] {
                        ["run", "--bin", program] => Some(program),
                        _ => None,
                    }
                }
                path => path.strip_prefix("target/release/"),
            };
            let program =
                program.unwrap_or_else(|| panic!("this test knows no such command: {line}"));
            let port = format!(":{}", self.port.number());
            let mut command = command(program, &[]);
            command.args(words.map(|word| word.replace(":7171", &port)));
            command.current_dir(self.dir.path()).env_remove("XDG_STATE_HOME");
            command
        }
    }

    #[test]
    fn the_commands_of_the_readme_work_in_order_in_one_directory() {
        let commands = commands();
        let commands: Vec<_> = commands.iter().map(String::as_str).collect();
        let [first, coordinator, worker, watch, whole, by_rows, verify, audit] = commands[..]
        else {
            panic!("this test knows eight commands of README: {commands:#?}");
        };
        let reader = Reader {
            dir: tempfile::tempdir().expect("a temporary directory"),
            port: Port::reserve(),
        };
        let mut runs = Vec::new();
        let readme = read("README.md");
        let total = readme.lines().find(|line| line.starts_with("N = 20: ")).expect("its output");
        for _ in 0..2 {
            // This counts for minutes.
            reader.types(first).end_within(10 * PATIENCE).ok().prints(&[total]);

            let coordinator = reader.types(coordinator);
            let listening = coordinator.stderr_line("listening on");
            runs.push(listening.split(": run ").nth(1).expect("the line names the run").to_owned());
            let worker = reader.pastes(worker, &coordinator);
            let watch = reader.pastes(watch, &coordinator);
            watch.stdout_line("N = 22");
            worker.stderr_line("N = 22 by method frames");
            let end = watch.interrupt();
            assert!(!end.stdout.contains("result"), "{end:#?}");
            worker.interrupt();
            let end = coordinator.interrupt().logs(&["the same command resumes"]);
            assert_eq!(end.stdout, "", "no result: {end:#?}");
        }
        assert_eq!(runs[0], runs[1], "the second time continues the run");

        reader.types(whole).end().ok().prints(&["666,090,624"]);
        reader.types(by_rows).end().ok().prints(&["14,772,512"]);
        reader.types(verify).end().ok().prints(&["solutions  39029188884"]);
        // Two of the twenty tasks: counting is tested elsewhere.
        let docs = reader.dir.path().join("docs");
        std::os::unix::fs::symlink(root().join("docs"), docs).expect("a link");
        let audit = format!("{audit} --tasks 2 --seed 1");
        reader.types(&audit).end().ok().prints(&["recount    passed"]);
    }
}

/// Checks the tour and its pictures; with `QUEENS_TOUR=write`, updates them.
#[test]
fn every_command_of_the_tour_prints_and_draws_what_it_shows() {
    let dir = tempfile::tempdir().unwrap();
    let (drawn, shown) = (dir.path().join("img"), root().join("docs/img"));
    fs::create_dir(&drawn).unwrap();
    let written = check_transcript(&root().join("docs/tour.md"), dir.path());
    let pictures = fs::read_dir(&drawn).unwrap();
    let pictures: Vec<_> = pictures.map(|picture| picture.unwrap().file_name()).collect();
    assert_eq!(pictures.len(), 2, "the tour's pictures: {pictures:?}");
    for name in pictures {
        let (drawn, shown) = (drawn.join(&name), shown.join(&name));
        if written {
            fs::copy(drawn, shown).unwrap();
        } else {
            assert!(fs::read(drawn).unwrap() == fs::read(shown).unwrap(), "{name:?} has changed");
        }
    }
}

#[test]
fn only_measured_numbers_may_differ() {
    assert_eq!(comparable("took 1.25 s,  92 of 92"), comparable("took 13.5 s, 92 of 92"));
    assert_ne!(comparable("92 solutions"), comparable("93 solutions"));
    assert_ne!(comparable("14,200 in 1.0"), comparable("14,201 in 1.0"));
}
