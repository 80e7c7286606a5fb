//! The programs on a real terminal: what they draw, and what remains afterwards.

use std::{
    io::{Read as _, Write},
    num::NonZeroU16,
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::Instant,
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use tests::{
    cluster::Cluster,
    process::{PATIENCE, Process, coordinator, programs},
};

struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    reading: Option<JoinHandle<()>>,
}

/// The screen, and everything that was written to it.
struct Shown {
    screen: vt100::Parser,
    written: String,
    ended: bool,
}

fn cells(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).expect("a size")
}

impl Terminal {
    /// Starts a shell command on a terminal of this size.
    fn start((rows, cols): (u16, u16), script: &str) -> Self {
        let size = PtySize { rows, cols, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", script]);
        command.env("TERM", "xterm-256color");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", programs().display()));
        for name in ["NO_COLOR", "RUST_LOG"] {
            command.env_remove(name);
        }
        let mut reader = pair.master.try_clone_reader().expect("a readable terminal");
        let child = pair.slave.spawn_command(command).expect("sh starts");
        let shown = Shown {
            screen: vt100::Parser::new(cells(rows), cells(cols), 0),
            written: String::new(),
            ended: false,
        };
        let shown = Arc::new((Mutex::new(shown), Condvar::new()));
        let seen = Arc::clone(&shown);
        let reading = thread::spawn(move || {
            let mut part = [0; 4096];
            // The end of a terminal is an error on Linux.
            while let Ok(size @ 1..) = reader.read(&mut part) {
                let mut shown = seen.0.lock().expect("no reader panics");
                shown.screen.process(&part[..size]);
                shown.written += &String::from_utf8_lossy(&part[..size]);
                seen.1.notify_all();
            }
            seen.0.lock().expect("no reader panics").ended = true;
            seen.1.notify_all();
        });
        Self {
            keys: pair.master.take_writer().expect("a writable terminal"),
            master: pair.master,
            child,
            shown,
            reading: Some(reading),
        }
    }

    /// Waits until `condition` holds for the terminal and its text; returns the text.
    fn until(&self, what: &str, condition: impl Fn(&Shown, &str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().expect("no reader panics");
        loop {
            let text = shown.screen.screen().contents();
            if condition(&shown, &text) {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !shown.ended, "timed out waiting for {what}:\n{text}");
            shown = self.shown.1.wait_timeout(shown, left).expect("no reader panics").0;
        }
    }

    fn shows(&self, part: &str) -> String {
        self.until(part, |_, text| text.contains(part))
    }

    fn resize(&self, (rows, cols): (u16, u16)) {
        let size = PtySize { rows, cols, ..PtySize::default() };
        let mut shown = self.shown.0.lock().expect("no reader panics");
        shown.screen.screen_mut().set_size(cells(rows), cells(cols));
        self.master.resize(size).expect("a terminal");
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("an open terminal");
        self.keys.flush().expect("an open terminal");
    }

    /// Waits for the shell to end; returns its exit code, the screen and all output.
    fn end(mut self) -> (u32, String, String) {
        self.until("its end", |shown, _| shown.ended);
        let code = self.child.wait().expect("a child").exit_code();
        drop(self.keys);
        drop(self.master);
        if let Some(reading) = self.reading.take() {
            reading.join().expect("no reader panics");
        }
        let shown = self.shown.0.lock().expect("no reader panics");
        let screen = shown.screen.screen();
        assert!(!screen.alternate_screen(), "the terminal is restored");
        assert!(!screen.hide_cursor(), "the cursor is shown");
        (code, screen.contents(), shown.written.clone())
    }
}

#[test]
fn a_screen_follows_a_run_over_a_lost_coordinator_and_restores_the_terminal() {
    let cluster = Cluster::new(&["--n", "18", "--method", "rows"]);
    let coordinator = cluster.coordinator();
    let connection = cluster.connection().join(" ");
    let script = format!(
        "set -m; echo stood here; queensctl {connection} status --watch; echo stopped; read line; fg; echo code $?"
    );
    let mut terminal = Terminal::start((24, 80), &script);
    let text = terminal.shows("q quit");
    for part in
        ["N = 18", "ETA", "Verification", "Alerts", "Estimated total", "666,090,624", "0 workers"]
    {
        assert!(text.contains(part), "'{part}' in\n{text}");
    }
    assert!(!text.contains("stood here"), "not an alternate screen:\n{text}");
    let worker = cluster.worker("seen");
    terminal.shows("seen");
    let status = cluster.queensctl(&["status", "--json"]).ok().json();
    let run = status["run"].as_str().expect("a run");
    let digits = &run[..4];
    for (key, part) in [
        // Pasted text and keys with Ctrl or Alt are no commands.
        ("\x1b[200~export https_proxy=http://proxy:3128\nx\x1b[201~\x18\x1bx1", "COUNTING"),
        ("?", "close this help"),
        ("?", "2 machines"),
        ("3", "Tasks by state"),
        ("1", "COUNTING"),
        (&format!("p{digits}"), "paused, priority 0"),
        (&format!("r{digits}"), "running, priority 0"),
        ("/nothing\r", "q quit"),
        ("/\x1b", "COUNTING"),
        ("x", &format!("Type {digits}, or any other key")),
        ("y", "q quit"),
        ("\x1a", "stopped"),
        ("\n", "q quit"),
        ("2", "LAST SEEN"),
    ] {
        terminal.press(key);
        terminal.shows(part);
    }
    // On a wider terminal nothing is wrapped.
    terminal.resize((60, 200));
    terminal.until("as wide", |_, text| text.lines().any(|line| line.chars().count() > 100));
    drop(coordinator.kill());
    terminal.shows("does not answer; retrying every second");
    let coordinator = cluster.coordinator();
    terminal.until("connected again", |_, text| {
        text.contains("q quit") && !text.contains("does not answer")
    });
    terminal.press("q");
    let (code, text, _) = terminal.end();
    assert_eq!(code, 0);
    // The earlier text is shown again, with the last status below it.
    for part in ["stood here", "N = 18, method rows", "code 0"] {
        assert!(text.contains(part), "'{part}' in\n{text}");
    }
    drop((worker, coordinator));
}

#[test]
fn a_screen_closes_on_ctrl_c_and_stays_for_the_next_run() {
    let cluster = Cluster::new(&["--n", "12"]);
    let coordinator = cluster.serving();
    let script =
        format!("queensctl {} status --watch; echo code $?", cluster.connection().join(" "));
    let mut terminal = Terminal::start((24, 80), &format!("NO_COLOR=1 {script}"));
    terminal.shows("q quit");
    terminal.press("\x03");
    let (_, text, written) = terminal.end();
    assert!(text.contains("code 130"), "{text}");
    assert!(
        !written.contains("\x1b[34m") && !written.contains("\x1b[38;5;"),
        "colors: {written:?}"
    );
    // The screen stays for the next run.
    let mut terminal = Terminal::start((24, 80), &script);
    terminal.shows("q quit");
    let worker = cluster.worker("one");
    terminal.shows("14,200");
    terminal.press("q");
    let (_, text, _) = terminal.end();
    assert!(text.contains("code 0"), "{text}");
    drop((worker, coordinator));
}

#[test]
fn a_worker_has_a_status_line_below_its_log_unless_it_is_quiet() {
    let cluster = Cluster::new(&["--n", "18", "--method", "rows"]);
    let coordinator = cluster.serving();
    let (connection, spool) = (cluster.connection().join(" "), cluster.path("spool"));
    let worker = format!("worker {connection} --threads 1 --spool {}", spool.display());
    let script = |more: &str| format!("{worker} {more}; echo code $?");
    // A narrower terminal cuts the end of the line, where the spool is.
    let mut terminal = Terminal::start((24, 140), &script(""));
    let text = terminal.shows("1 thread, 1 task: N = 18 task ");
    let line = text.lines().find(|line| line.contains("1 thread, 1 task")).unwrap();
    assert!(line.contains("| contact ") && line.contains("in spool"), "{text}");
    terminal.press("\x03");
    let (_, text, _) = terminal.end();
    // Log lines are complete, and the status line is gone.
    assert!(text.contains("stopped: "), "{text}");
    assert!(!text.contains("1 thread, 1 task"), "{text}");
    let terminal = Terminal::start((24, 120), &script("--quiet --drain-after 1s"));
    let (_, text, written) = terminal.end();
    assert_eq!(text.trim(), "code 0", "nothing is printed: {written:?}");
    drop(coordinator);
}

#[test]
fn verifying_draws_a_bar_and_leaves_only_what_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    Process::run(coordinator(&["--n", "10", "--local", "--quiet", "--data-dir"]).arg(&data)).ok();
    let script = |more: &str| format!("queensctl verify {more} {}", data.display());
    let (code, text, written) = Terminal::start((24, 100), &script("")).end();
    assert_eq!(code, 0, "{text}");
    assert!(written.contains("lines per second, 0.0 s left"), "{written:?}");
    assert!(!text.contains("lines per second"), "{text}");
    assert_eq!(text.matches("solutions  724").count(), 1, "{text}");
    let (_, text, written) = Terminal::start((24, 100), &script("--quiet")).end();
    assert!(text.contains("solutions  724"), "{text}");
    assert!(!written.contains('\x1b'), "nothing is drawn: {written:?}");
}

/// Other output is kept in logs.
#[test]
fn a_coordinator_prints_secrets_on_a_terminal_only() {
    let cluster = Cluster::public(&["--n", "12", "--http", "127.0.0.1:0"]);
    let command = cluster.command(&[]);
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let secrets = ["QUEENS_JOIN=queens1-", "/login/"];
    let mut terminal = Terminal::start((24, 80), &format!("coordinator {}", words.join(" ")));
    terminal.until("both secrets", |shown, _| {
        secrets.iter().all(|secret| shown.written.contains(secret))
    });
    terminal.press("\x03");
    terminal.end();
    let coordinator = cluster.start(&[]);
    let join = coordinator.join_for("queensctl status");
    assert_eq!(join, format!("@{}", cluster.path("data/auth/operator.join").display()));
    let end = coordinator.interrupt();
    assert!(!secrets.iter().any(|secret| end.stderr.contains(secret)), "{end:#?}");
    assert!(end.stderr.contains("log in with a link of `queensctl dashboard`"), "{end:#?}");
}

/// The bar disappears when the run is cancelled, and comes back with the next.
#[test]
fn the_bar_follows_the_current_run() {
    let cluster = Cluster::new(&[]);
    let (address, connection) = (cluster.address(), cluster.connection().join(" "));
    let script =
        format!("coordinator --n 20 --method rows --no-http --listen {address} {connection}");
    let mut terminal = Terminal::start((24, 200), &script);
    let bar = |text: &str| {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        last.contains("tasks, 0 workers").then(|| last.to_owned())
    };
    let first = terminal.until("a bar", |_, text| bar(text).is_some());
    cluster.queensctl(&["cancel", "last", "--yes"]).ok();
    terminal.until("without a bar, and with the reason", |_, text| {
        let reason = "(N = 20) was cancelled by operator; its results are kept: 0 of ";
        bar(text).is_none() && text.contains(reason)
    });
    cluster.queensctl(&["submit", "--n", "17", "--method", "rows"]).ok();
    terminal.until("the bar of the other run", |_, text| {
        bar(text).is_some_and(|second| Some(second) != bar(&first))
    });
    terminal.press("\x03");
    terminal.end();
}

#[test]
fn counting_draws_a_bar_and_leaves_only_its_result() {
    let script = |more: &str| format!("worker count --n 16 --method rows --threads 1 {more}");
    let terminal = Terminal::start((24, 100), &script("--kernel scalar"));
    terminal.shows("reference cores");
    let (code, text, _) = terminal.end();
    assert_eq!(code, 0);
    assert_eq!(text.matches("14,772,512 solutions").count(), 1, "{text}");
    assert!(!text.contains("reference cores"), "{text}");
    let (_, text, written) = Terminal::start((24, 200), &script("--quiet")).end();
    assert!(text.trim().starts_with("N = 16:"), "{text}");
    assert!(!written.contains('\x1b'), "nothing is drawn: {written:?}");
}

/// Output of commands without a coordinator fits a terminal of 80 columns.
#[test]
fn tables_and_sentences_are_no_wider_than_their_terminal() {
    for command in [
        "frames --n 9",
        "frames --n 8 --a 5 --c 10",
        "solve --n 100000 --summary --seed 1",
        "solve --n 4 --iterations --seed 1",
        "compare --bounds --max-n 5",
        "compare --table hiroi --max-n 15 --time-limit 1",
        "compare --table haginoya --max-n 17",
        "compare --table next-permutation --max-n 8",
        "compare --table list-comprehension --max-n 6",
        "compare --table suzuki --time-limit 1",
    ] {
        let script = format!("queensctl {command}");
        let (code, text, written) = Terminal::start((24, 80), &script).end();
        assert_eq!(code, 0, "{command}: {text}");
        assert!(!written.contains('\x1b'), "{command} draws: {written:?}");
        let wide = written.lines().find(|line| line.trim_end_matches('\r').chars().count() > 80);
        assert_eq!(wide, None, "{command}");
    }
}
