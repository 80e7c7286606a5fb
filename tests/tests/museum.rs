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

#[test]
fn documents_are_printed_in_their_layout_with_ours_beside() {
    let boards = stdout(&["ladder", "--as", "next-permutation"]);
    assert!(
        boards.starts_with("solution No.1\na b c d e f g h\nq . . . . . . . 1\n"),
        "{boards}"
    );
    let last = "92 solutions; 8 queens on 64 squares stand in 4,426,165,368 ways, one a row and a column in \
                40,320, of which next_permutation visits 40,320";
    assert_eq!(boards.lines().last(), Some(last));

    let list = stdout(&["ladder", "--as", "list-comprehension", "--max-n", "8"]);
    let counts: Vec<_> = list
        .lines()
        .skip(1)
        .map(|line| line.split_once(' ').unwrap().0)
        .collect();
    assert_eq!(counts, ["(4,2)", "(5,10)", "(6,4)", "(7,40)", "(8,92)"]);
    assert!(
        list.lines().last().unwrap().ends_with("84,557,168,640"),
        "{list}"
    );

    let hiroi = stdout(&[
        "ladder",
        "--as",
        "hiroi",
        "--max-n",
        "9",
        "--time-limit",
        "600",
    ]);
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<_> = hiroi.lines().map(words).collect();
    let line = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for expected in [
        "queens : 8 : 9",
        "solutions : 92 : 352",
        "(0) : 0.003 : 0.023",
    ] {
        assert!(lines.contains(&line(expected)), "{expected}: {hiroi}");
    }

    let suzuki = stdout(&["ladder", "--as", "suzuki"]);
    assert!(
        suzuki.starts_with("1\n 0 2 4 1 3 \n+-+-+-+-+-+\n|O| | | | |\n"),
        "{suzuki}"
    );

    let haginoya = stdout(&[
        "ladder",
        "--as",
        "haginoya",
        "--max-n",
        "18",
        "--time-limit",
        "60",
    ]);
    assert_eq!(haginoya.matches("printed rounded").count(), 2, "{haginoya}");
    let lines: Vec<_> = haginoya.lines().map(words).collect();
    let qjh = "QJH 25.37 3:17.60 24:07.40 3:05:28.20 27:08:40.50 table 4, Core2 Duo T8100 2.1 GHz";
    assert!(lines.contains(&line(qjh)), "{haginoya}");
    assert!(haginoya.contains("\nframes, N = 18"), "{haginoya}");
    assert_eq!(queensctl(&["ladder", "--as", "nobody"]).code, Some(2));
    for (given, says) in [
        ("--max-n 3", "begin with N = 4"),
        ("--as hiroi --max-n 7", "begin with N = 8"),
    ] {
        let words: Vec<_> = ["ladder"].into_iter().chain(given.split(' ')).collect();
        let end = queensctl(&words);
        assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{end:#?}");
        assert!(end.stderr.contains(says), "{end:#?}");
    }
}

#[test]
fn tries_are_reproduced_from_a_seed() {
    let arguments = ["place", "--n", "8", "--tries", "--seed", "1"];
    let table = stdout(&arguments);
    assert_eq!(stdout(&arguments), table);
    for printed in [3955, 1754, 51, 1140, 1155, 88, 2479, 307, 370, 1471] {
        let in_column = |line: &str| line.split_whitespace().nth(1) == Some(&printed.to_string());
        assert!(table.lines().any(in_column), "{printed}: {table}");
    }
}

#[test]
fn frames_are_shown_and_opened() {
    for (n, total) in [("8", " 92; published: 92"), ("9", " 352; published: 352")] {
        let table = stdout(&["frames", "--n", n]);
        assert!(table.contains(total), "{table}");
        assert_eq!(table.contains("Table 3"), n == "9", "{table}");
    }
    let opened = stdout(&["frames", "--n", "8", "--a", "0b0101", "--c", "10"]);
    for line in [
        "solutions                              6",
        "quarter boards P                       8",
    ] {
        assert!(
            opened.lines().any(|found| found == line),
            "{line}: {opened}"
        );
    }
    let end =
        "6 solutions; + holds, - fails, . not asked. Representatives: 2 of class a, 0 of b, 0 of c";
    assert_eq!(opened.lines().last(), Some(end));
    let refused = queensctl(&["frames", "--n", "8", "--a", "1", "--c", "3"]);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("no frame of N = 8"), "{refused:#?}");
    assert_eq!(
        queensctl(&["frames", "--n", "8", "--a", "x", "--c", "3"]).code,
        Some(2)
    );
    let estimated = stdout(&[
        "frames",
        "--n",
        "20",
        "--a",
        "0b1010100110",
        "--c",
        "0b0101101001",
    ]);
    assert!(estimated.contains("half boards above"), "{estimated}");
}

#[test]
fn fleets_are_planned_and_who_cannot_join_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let kinds = |ending: &str, text: &str| {
        let file = dir.path().join(format!("fleet.{ending}"));
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let toml = kinds(
        "toml",
        "[[machine]]\nname = \"rack\"\ncount = 40\ncores = 16\nmemory = \"8GiB\"\nspeed = 0.9\nwatts = 250\n\
         [[machine]]\nname = \"tiny\"\ncores = 8\nmemory = \"16MiB\"\nrate = 4\n",
    );
    let text = stdout(&["plan", "--n", "24", "--fleet", &toml]);
    for part in [
        "rack",
        "tiny cannot join: N = 24 needs at least --memory",
        "100.0 %",
        "kWh",
        "disk",
    ] {
        assert!(text.contains(part), "'{part}' in\n{text}");
    }
    let as_json = |file: &str| -> serde_json::Value {
        let text = stdout(&["plan", "--n", "24", "--fleet", file, "--json"]);
        serde_json::from_str(&text).unwrap()
    };
    let json = kinds(
        "json",
        r#"{"machine":[{"name":"rack","count":40,"cores":16,"memory":"8GiB","speed":0.9,"watts":250},
            {"name":"tiny","cores":8,"memory":"16MiB","rate":4}]}"#,
    );
    let planned = as_json(&json);
    assert_eq!(planned, as_json(&toml));
    assert_eq!(planned["machines"][0]["joins"], true);
    assert_eq!(planned["machines"][1]["joins"], false);
    let tiny = kinds(
        "toml",
        "[[machine]]\nname = \"tiny\"\ncores = 8\nmemory = \"16MiB\"\nspeed = 1\n",
    );
    let end = queensctl(&["plan", "--n", "24", "--fleet", &tiny]);
    assert_eq!(end.code, Some(1));
    let bad = kinds("toml", "[[machine]]\nnme = \"tiny\"\n");
    let end = queensctl(&["plan", "--n", "24", "--fleet", &bad]);
    assert_eq!(end.code, Some(2));
    let said = end.stderr;
    assert!(said.contains("nme") && said.lines().count() == 1, "{said}");
}
