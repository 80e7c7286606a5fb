//! `docs/tour.md`: every command is run, and prints what the tour says it prints; its pictures are those
//! that its commands draw. `QUEENS_TOUR=write` writes what they print into the tour instead.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tests::binaries::binaries;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// What a shell prints in `dir` with the programs of this workspace on its path.
fn run(command: &str, dir: &Path) -> String {
    let programs = binaries()
        .queensctl
        .parent()
        .expect("programs lie in a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .env("PATH", format!("{}:{path}", programs.display()))
        .output()
        .expect("a shell runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{command}: {stderr}");
    String::from_utf8(output.stdout).expect("programs write UTF-8")
}

/// Numbers with a decimal point are measured; how columns are spaced may depend on them.
fn comparable(text: &str) -> Vec<String> {
    let measured = |word: &str| {
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
        let (whole, part) = digits.split_once('.')?;
        let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (all_digits(whole) && all_digits(part)).then(|| word.replace(digits, "#"))
    };
    let line = |line: &str| {
        let words = line.split_whitespace();
        let words = words.map(|word| measured(word).unwrap_or_else(|| word.to_owned()));
        words.collect::<Vec<_>>().join(" ")
    };
    text.trim_end().lines().map(line).collect()
}

/// The tour with what its commands print now.
fn walked(tour: &str, dir: &Path) -> String {
    let mut text = String::new();
    let mut in_block = false;
    for line in tour.lines() {
        match (in_block, line) {
            (false, "```console") => in_block = true,
            (true, "```") => in_block = false,
            (false, _) => {}
            (true, _) => {
                let Some(command) = line.strip_prefix("$ ") else {
                    // What it printed before.
                    continue;
                };
                text += &format!("{line}\n");
                let printed = run(command, dir);
                for line in printed.trim_end().lines() {
                    text += &format!("{}\n", line.trim_end());
                }
                continue;
            }
        }
        text += &format!("{line}\n");
    }
    text
}

#[test]
fn every_command_prints_what_the_tour_says() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("img")).unwrap();
    let path = docs().join("tour.md");
    let tour = fs::read_to_string(&path).unwrap();
    let now = walked(&tour, dir.path());
    let drawn: Vec<_> = fs::read_dir(dir.path().join("img"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(drawn.len(), 2, "the tour's pictures: {drawn:?}");
    if std::env::var_os("QUEENS_TOUR").is_some_and(|word| word == "write") {
        fs::write(&path, &now).unwrap();
        for name in &drawn {
            fs::copy(
                dir.path().join("img").join(name),
                docs().join("img").join(name),
            )
            .unwrap();
        }
        return;
    }
    for name in &drawn {
        let read = |dir: &Path| fs::read_to_string(dir.join("img").join(name)).unwrap();
        assert!(
            read(dir.path()) == read(&docs()),
            "{name} is not what the command draws"
        );
    }
    let (said, printed) = (comparable(&tour), comparable(&now));
    for (number, (said, printed)) in (1..).zip(said.iter().zip(&printed)) {
        assert_eq!(said, printed, "docs/tour.md, line {number}");
    }
    assert_eq!(said.len(), printed.len());
}

#[test]
fn only_measured_numbers_may_differ() {
    assert_eq!(
        comparable("took 1.25 s,  92 of 92"),
        comparable("took 13.5 s, 92 of 92")
    );
    assert_ne!(comparable("92 solutions"), comparable("93 solutions"));
    assert_ne!(comparable("14,200 in 1.0"), comparable("14,201 in 1.0"));
}
