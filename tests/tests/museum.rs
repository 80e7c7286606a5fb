//! The commands of `queensctl` that need no coordinator.

use std::{fs, process::Command};

use tests::{
    binaries::binaries,
    process::{End, Process},
};

fn queensctl(arguments: &[&str]) -> End {
    let mut command = Command::new(&binaries().queensctl);
    Process::run("queensctl", command.args(arguments))
}

fn stdout(arguments: &[&str]) -> String {
    let end = queensctl(arguments);
    assert_eq!(end.code, Some(0), "{arguments:?}: {end:#?}");
    end.stdout
}

/// What the program of the second document prints from its first record to its last, made from its
/// solutions by the rules of its function `printRecord`.
fn records(solutions: &[[usize; 5]]) -> String {
    let mut text = String::new();
    for (number, board) in (1..).zip(solutions) {
        let columns: Vec<_> = board.iter().map(usize::to_string).collect();
        text += &format!("{number}\n {} \n+-+-+-+-+-+\n", columns.join(" "));
        for row in 0..5 {
            let cells: Vec<_> = board
                .iter()
                .map(|&c| if c == row { "O" } else { " " })
                .collect();
            text += &format!("|{}|\n+-+-+-+-+-+\n", cells.join("|"));
        }
        text.push('\n');
    }
    text
}

#[test]
fn solutions_are_shown_in_order_and_by_number() {
    let all = stdout(&["show", "--n", "8", "--style", "line"]);
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines.len(), 92);
    assert_eq!(
        (lines[0], lines[91]),
        ("0 4 7 5 2 6 1 3", "7 3 0 2 5 1 6 4")
    );
    for (index, line) in [("1", lines[0]), ("57", lines[56]), ("92", lines[91])] {
        let one = stdout(&["show", "--n", "8", "--index", index, "--style", "line"]);
        assert_eq!(one, line);
    }
    let unique = stdout(&["show", "--n", "8", "--unique", "--style", "line"]);
    assert_eq!(unique.lines().count(), 12);
    let listed = stdout(&["show", "--n", "5", "--order", "list", "--style", "line"]);
    assert_eq!(listed.lines().next(), Some("3 1 4 2 0"));
    let none = stdout(&["show", "--n", "3"]);
    assert_eq!(none, "N = 3: no solution exists");
    let end = queensctl(&["show", "--n", "8", "--index", "93"]);
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(end.stderr.contains("fewer than 93 solutions"), "{end:#?}");
    // The last solution mirrors the first.
    let line = |index| stdout(&["show", "--n", "15", "--index", index, "--style", "line"]);
    let columns = |index| -> Vec<u32> {
        let line = line(index);
        line.split(' ')
            .map(|column| column.parse().unwrap())
            .collect()
    };
    let mirrored: Vec<u32> = columns("1").iter().map(|column| 14 - column).collect();
    assert_eq!(columns("2279184"), mirrored);
}

#[test]
fn records_are_those_of_the_document() {
    let solutions = [
        [0, 2, 4, 1, 3],
        [0, 3, 1, 4, 2],
        [1, 3, 0, 2, 4],
        [1, 4, 2, 0, 3],
        [2, 0, 3, 1, 4],
        [2, 4, 1, 3, 0],
        [3, 0, 2, 4, 1],
        [3, 1, 4, 2, 0],
        [4, 1, 3, 0, 2],
        [4, 2, 0, 3, 1],
    ];
    let shown = stdout(&["show", "--n", "5", "--style", "record"]);
    assert_eq!(shown.trim_end(), records(&solutions).trim_end());
}

#[test]
fn pasted_boards_are_judged() {
    let valid = stdout(&["show", "--check", ". Q . .\n. . . Q\nQ . . .\n. . Q ."]);
    for part in [
        "valid: 4 queens",
        "class: c (quarter-turn)",
        "as it is                 1 3 0 2",
        "mirrored left and right  2 0 3 1",
        "half turn                1 3 0 2  (= as it is)",
    ] {
        assert!(
            valid.lines().any(|line| line.starts_with(part)),
            "{part}: {valid}"
        );
    }
    let end = queensctl(&["show", "--check", "0 1 3 2"]);
    assert_eq!(end.code, Some(3), "{end:#?}");
    let pair = "no solution: the queens in row 1, column 1 and row 2, column 2 attack each other along a falling diagonal";
    assert_eq!(end.stdout, pair);
    let end = queensctl(&["show", "--check", "Q . . x"]);
    assert_eq!(end.code, Some(2), "{end:#?}");
    assert!(end.stderr.contains("line 1: 'x' is no square"), "{end:#?}");
    let end = queensctl(&["show", "--check", "@/does/not/exist"]);
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(end.stderr.contains("/does/not/exist"), "{end:#?}");
}

#[test]
fn boards_are_drawn_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (svg, png) = (path("a.svg"), path("a.png"));
    stdout(&["show", "--n", "8", "--unique", "--svg", &svg, "--png", &png]);
    let text = fs::read_to_string(&svg).unwrap();
    assert_eq!(text.matches("href=\"#queen\"").count(), 12 * 8);
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    let end = queensctl(&["show", "--n", "9", "--svg", &svg]);
    assert_eq!(end.code, Some(1), "{end:#?}");
    assert!(end.stderr.contains("one sheet"), "{end:#?}");
}

#[test]
fn one_solution_of_a_huge_board() {
    let arguments = ["place", "--n", "200000", "--seed", "7"];
    let columns = stdout(&arguments);
    assert_eq!(
        stdout(&arguments),
        columns,
        "a seed gives the same solution"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("solution");
    fs::write(&file, &columns).unwrap();
    let checked = stdout(&["show", "--check", &format!("@{}", file.display())]);
    assert!(checked.starts_with("valid: 200,000 queens"), "{checked}");
    for method in ["linear", "figure-1", "figure-2"] {
        let board = stdout(&["place", "--n", "10", "--method", method, "--seed", "1"]);
        let checked = stdout(&["show", "--check", &board]);
        assert!(
            checked.starts_with("valid: 10 queens"),
            "{method}: {checked}"
        );
    }
    for n in ["2", "3"] {
        let answer = stdout(&["place", "--n", n]);
        assert_eq!(answer, format!("N = {n}: no solution exists"));
    }
    assert_eq!(stdout(&["place", "--n", "1"]), "Q");
    assert_eq!(queensctl(&["place", "--n", "0"]).code, Some(2));
}
