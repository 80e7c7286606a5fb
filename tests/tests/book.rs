//! The book in `docs/` and the other pages: every link leads somewhere, every page is in the book.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pages(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect()
}

/// The targets of `[text](target)`, outside of code.
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

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let head = line.trim_start_matches('#').trim().to_lowercase();
        let kept = head
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
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
fn every_alarm_leads_to_what_to_do() {
    let rules = fs::read_to_string(root().join("deploy/monitoring/alerts.yml")).unwrap();
    let operations = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let mut alarms = 0;
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        let anchor = name.to_lowercase();
        let runbook = format!("runbook: docs/operations.md#{anchor}\n");
        assert!(rule.contains(&runbook), "{name} has no {runbook}");
        let line = format!("| <a id=\"{anchor}\"></a>`{name}` | ");
        assert!(operations.contains(&line), "{name} has no line");
        alarms += 1;
    }
    assert!(alarms > 5, "{alarms} alarms");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in pages("docs") {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name}"
        );
    }
}
