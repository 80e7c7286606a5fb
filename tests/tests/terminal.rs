//! The programs on a real terminal: what they draw there, and what they leave behind.

use std::{
    io::{Read as _, Write},
    num::NonZeroU16,
    path::Path,
    process::Command,
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::Instant,
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use tests::{binaries::binaries, cluster::Cluster, process::PATIENCE};

/// A terminal with a program on it.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    reading: Option<JoinHandle<()>>,
}

/// What stands on it, and all that was ever written to it.
struct Shown {
    screen: vt100::Parser,
    written: String,
    ended: bool,
}

fn cells(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).expect("a size")
}

impl Terminal {
    /// A shell command on a terminal of so many rows and columns.
    fn start((rows, cols): (u16, u16), script: &str, settings: &[(&str, &str)]) -> Self {
        let size = PtySize {
            rows,
            cols,
            ..PtySize::default()
        };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", script]);
        command.env("TERM", "xterm-256color");
        for name in ["NO_COLOR", "RUST_LOG"] {
            command.env_remove(name);
        }
        for (name, value) in settings {
            command.env(name, value);
        }
        let mut reader = pair.master.try_clone_reader().expect("it can be read");
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
                let mut shown = seen.0.lock().expect("nobody panics");
                shown.screen.process(&part[..size]);
                shown.written += &String::from_utf8_lossy(&part[..size]);
                seen.1.notify_all();
            }
            seen.0.lock().expect("nobody panics").ended = true;
            seen.1.notify_all();
        });
        Self {
            keys: pair.master.take_writer().expect("it can be written"),
            master: pair.master,
            child,
            shown,
            reading: Some(reading),
        }
    }

    /// Waits until what stands there is so; what it is then.
    fn until(&self, what: &str, is_so: impl Fn(&vt100::Screen, &str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().expect("nobody panics");
        loop {
            let text = shown.screen.screen().contents();
            if is_so(shown.screen.screen(), &text) {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !shown.ended, "never {what}:\n{text}");
            shown = self
                .shown
                .1
                .wait_timeout(shown, left)
                .expect("nobody panics")
                .0;
        }
    }

    fn says(&self, part: &str) -> String {
        self.until(part, |_, text| text.contains(part))
    }

    fn resize(&self, (rows, cols): (u16, u16)) {
        let size = PtySize {
            rows,
            cols,
            ..PtySize::default()
        };
        let mut shown = self.shown.0.lock().expect("nobody panics");
        shown.screen.screen_mut().set_size(cells(rows), cells(cols));
        self.master.resize(size).expect("it has a size");
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads");
        self.keys.flush().expect("it reads");
    }

    /// Waits for the shell to end; its exit code, what stands there, and all that was written.
    fn end(mut self) -> (u32, String, String) {
        self.until_ended();
        let code = self.child.wait().expect("it can be waited for").exit_code();
        drop(self.keys);
        drop(self.master);
        if let Some(reading) = self.reading.take() {
            reading.join().expect("it does not panic");
        }
        let shown = self.shown.0.lock().expect("nobody panics");
        let screen = shown.screen.screen();
        assert!(!screen.alternate_screen(), "the terminal is given back");
        assert!(!screen.hide_cursor(), "the cursor is there");
        (code, screen.contents(), shown.written.clone())
    }

    fn until_ended(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().expect("nobody panics");
        while !shown.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            let text = shown.screen.screen().contents();
            assert!(!left.is_zero(), "it does not end:\n{text}");
            shown = self
                .shown
                .1
                .wait_timeout(shown, left)
                .expect("nobody panics")
                .0;
        }
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

#[test]
fn a_screen_follows_a_run_over_a_lost_coordinator_and_gives_the_terminal_back() {
    let cluster = Cluster::new(&["--n", "18", "--method", "rows"]);
    let coordinator = cluster.coordinator();
    let script = format!(
        "echo stood here; {} --coordinator {} status --watch; echo code $?",
        quoted(&binaries().queensctl),
        cluster.url()
    );
    let mut terminal = Terminal::start((24, 80), &script, &[]);
    let text = terminal.says("q leaves");
    for part in [
        "N = 18",
        "Ends",
        "Believed",
        "Wrong",
        "Estimate",
        "666,090,624",
        "0 workers",
    ] {
        assert!(text.contains(part), "'{part}' in\n{text}");
    }
    assert!(!text.contains("stood here"), "a page of its own:\n{text}");
    let worker = cluster.worker("seen");
    terminal.says("seen");
    // Wider: what was wrapped now stands in one line.
    terminal.resize((60, 200));
    terminal.until("as wide", |_, text| {
        text.lines().any(|line| line.chars().count() > 100)
    });
    drop(coordinator.kill());
    terminal.says("does not answer; trying again every second");
    let coordinator = cluster.coordinator();
    terminal.until("connected again", |_, text| {
        text.contains("q leaves") && !text.contains("does not answer")
    });
    terminal.press("q");
    let (code, text, _) = terminal.end();
    assert_eq!(code, 0);
    // What was there before is there again, and the last that was known below it.
    for part in ["stood here", "N = 18, method rows", "code 0"] {
        assert!(text.contains(part), "'{part}' in\n{text}");
    }
    drop((worker, coordinator));
}

#[test]
fn ctrl_c_leaves_a_screen_and_a_run_that_ends_does_too() {
    let cluster = Cluster::new(&["--n", "12"]);
    let coordinator = cluster.serving();
    let script = format!(
        "{} --coordinator {} status --watch; echo code $?",
        quoted(&binaries().queensctl),
        cluster.url()
    );
    let mut terminal = Terminal::start((24, 80), &script, &[("NO_COLOR", "1")]);
    terminal.says("q leaves");
    terminal.press("\x03");
    let (_, text, written) = terminal.end();
    assert!(text.contains("code 130"), "{text}");
    assert!(
        !written.contains("\x1b[34m") && !written.contains("\x1b[38;5;"),
        "colours: {written:?}"
    );
    let terminal = Terminal::start((24, 80), &script, &[]);
    terminal.says("q leaves");
    let worker = cluster.worker("one");
    let (_, text, _) = terminal.end();
    assert!(text.contains("14,200 solutions"), "{text}");
    assert!(text.contains("code 0"), "{text}");
    drop((worker, coordinator));
}

#[test]
fn a_worker_has_a_status_line_below_its_log_and_none_where_it_is_to_be_quiet() {
    let cluster = Cluster::new(&["--n", "18", "--method", "rows"]);
    let coordinator = cluster.serving();
    let spool = tempfile::tempdir().unwrap();
    let script = |more: &str| {
        format!(
            "{} --coordinator {} --threads 1 --spool {} {more}; echo code $?",
            quoted(&binaries().worker),
            cluster.url(),
            quoted(spool.path()),
        )
    };
    let mut terminal = Terminal::start((24, 120), &script(""), &[]);
    let text = terminal.says("1 thread in 1 crew, N = 18 task ");
    let line = text
        .lines()
        .find(|line| line.contains("in 1 crew"))
        .unwrap();
    assert!(
        line.contains("| link ") && line.contains("in spool"),
        "{text}"
    );
    terminal.press("\x03");
    let (_, text, _) = terminal.end();
    // Log lines stand whole, and the status line is gone.
    assert!(text.contains("stopped: "), "{text}");
    assert!(!text.contains("in 1 crew"), "{text}");
    let mut terminal = Terminal::start((24, 120), &script("--quiet --drain-after 1s"), &[]);
    let (_, text, written) = {
        terminal.until_ended();
        terminal.press("");
        terminal.end()
    };
    assert_eq!(text.trim(), "code 0", "nothing was said: {written:?}");
    drop(coordinator);
}

#[test]
fn verifying_draws_a_bar_and_leaves_only_what_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut count = Command::new(&binaries().coordinator);
    count.args(["--n", "10", "--local", "--quiet", "--data-dir"]);
    let counted = count.arg(&data).output().expect("it starts");
    assert!(counted.status.success(), "{counted:?}");
    let script = |more: &str| {
        let (queensctl, data) = (quoted(&binaries().queensctl), quoted(&data));
        format!("{queensctl} verify {more} {data}")
    };
    let (code, text, written) = Terminal::start((24, 100), &script(""), &[]).end();
    assert_eq!(code, 0, "{text}");
    assert!(
        written.contains("lines a second, 0.0 s left"),
        "{written:?}"
    );
    assert!(!text.contains("lines a second"), "{text}");
    assert_eq!(text.matches("solutions  724").count(), 1, "{text}");
    let (_, text, written) = Terminal::start((24, 100), &script("--quiet"), &[]).end();
    assert!(text.contains("solutions  724"), "{text}");
    assert!(!written.contains('\x1b'), "nothing is drawn: {written:?}");
}

#[test]
fn counting_draws_a_bar_and_leaves_only_its_result() {
    let script = |more: &str| {
        format!(
            "{} count --n 16 --method rows --threads 1 {more}",
            quoted(&binaries().worker)
        )
    };
    let terminal = Terminal::start((24, 100), &script("--kernel scalar"), &[]);
    terminal.says("reference cores");
    let (code, text, _) = terminal.end();
    assert_eq!(code, 0);
    assert_eq!(text.matches("14772512 solutions").count(), 1, "{text}");
    assert!(!text.contains("reference cores"), "{text}");
    let (_, text, written) = Terminal::start((24, 200), &script("--quiet"), &[]).end();
    assert!(text.trim().starts_with("N = 16:"), "{text}");
    assert!(!written.contains('\x1b'), "nothing is drawn: {written:?}");
}

/// What needs no coordinator fits a terminal of the usual width: the terminal breaks no line in a word.
#[test]
fn tables_and_sentences_are_no_wider_than_their_terminal() {
    for command in [
        "frames --n 9",
        "frames --n 8 --a 5 --c 10",
        "place --n 100000 --summary --seed 1",
        "place --n 4 --tries --seed 1",
        "ladder --bounds --max-n 5",
        "ladder --as hiroi --max-n 15 --time-limit 1",
        "ladder --as haginoya --max-n 17",
        "ladder --as next-permutation --max-n 8",
        "ladder --as list-comprehension --max-n 6",
        "ladder --as suzuki --time-limit 1",
    ] {
        let script = format!("{} {command}", quoted(&binaries().queensctl));
        let (code, text, written) = Terminal::start((24, 80), &script, &[]).end();
        assert_eq!(code, 0, "{command}: {text}");
        assert!(!written.contains('\x1b'), "{command} draws: {written:?}");
        let wide = written
            .lines()
            .find(|line| line.trim_end_matches('\r').chars().count() > 80);
        assert_eq!(wide, None, "{command}");
    }
}
