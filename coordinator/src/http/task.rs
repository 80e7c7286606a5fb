//! The page of a task: its frame, the frame's lists and, for small boards, the join step by step.

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use common::{
    frames::{Effort, Survey},
    plan::Plan,
};
use maud::{Markup, html};
use scheduler::TaskView;
use textbook::{assembly::Quarters, boards::Style};
use tokio::task::spawn_blocking;
use view::text::{plural, thousands};

use super::{
    App, api,
    guard::Refusal,
    layout,
    map::{self, MAX_STEPS, random_below},
};

/// Maximum number of units that are searched for a solution to show.
const MAX_UNITS: usize = 64;

/// The largest board whose lists are made, and the largest of which they are shown.
const MAX_SURVEYED: u8 = 22;
const MAX_SHOWN: u8 = 12;

/// Maximum numbers of keys per half, of bits, and of solutions that are shown.
const MAX_LISTED: usize = 8;

/// Effort for a frame's lists, which are estimated from a part of them if they are longer.
const EFFORT: Effort = Effort { halves: 1 << 17, pairs: 1 << 22 };

/// Memory for quarter boards.
const CACHE_BYTES: u64 = 64 << 20;

/// Answers with the page of a task.
pub(super) async fn task(
    State(app): State<App>,
    Path((name, task)): Path<(String, u64)>,
) -> Result<Response, Refusal> {
    let (run, view) = api::find_task(&app, &name, task).await?;
    let plan = app.driver.plan(run).await?.ok_or_else(|| api::no_run(run))?;
    let title = format!("N = {}: task {task}", plan.spec().board);
    let working = app.working.clone().lock_owned().await;
    let explained = spawn_blocking(move || {
        let _working = working;
        explain(&plan, &view)
    });
    let explained = explained.await.map_err(|error| Refusal::internal(error.to_string()))?;
    let body = html! {
        body {
            header { div.title { h1 { (title) } a href=(format!("/runs/{run}")) { "Back to the run" } } }
            main id="main" { (explained) }
        }
    };
    Ok(layout::page(&title, &body).into_response())
}

fn explain(plan: &Plan, task: &TaskView) -> Markup {
    let units = &task.units;
    let mut searched = units.clone().take(MAX_UNITS);
    let found = searched
        .find_map(|unit| Some((unit, plan.example(unit, MAX_STEPS, &mut random_below)?.queens)));
    let (unit, queens) = found.unwrap_or((units.start, Vec::new()));
    let count = task.count.map(|count| plural(count, "solution"));
    let mut survey = Survey::of(plan, CACHE_BYTES);
    html! {
        div.pair {
            section aria-labelledby="unit-h" {
                h2 id="unit-h" { @if survey.is_some() { "One frame of the task" } @else { "One prefix of the task" } }
                p.sub { "Task " (task.task) " (" (task.state.name()) @if let Some(count) = count { ", " (count) } ") has "
                    (thousands((units.end - units.start).into())) " of the run's " (thousands(plan.units().into())) " units; this is unit "
                    (thousands(unit.into())) "." }
                div id="board" { (map::svg(&queens, &plan.allowed(unit), plan.spec().layout.method())) }
                @match &survey {
                    None => p { "A prefix places the first queens, which are marked. A worker counts all ways to place the others,
                        row by row." },
                    Some(survey) => (frame(survey, unit)),
                }
                p { @if queens.is_empty() { "A short search finds no solution." } @else { "The queens show one of its solutions." } }
            }
            @if let Some(survey) = &mut survey { (lists(plan, survey, unit)) }
        }
        @if let Some(survey) = &mut survey && plan.spec().board.n() <= MAX_SHOWN { (steps(plan, survey, unit)) }
    }
}

fn frame(survey: &Survey, unit: u64) -> Markup {
    let (_, a, c) = survey.frame(unit);
    html! {
        p { "The board is cut into four quadrants. The queens in P are in the columns A = " (set(a)) ", counted from the left
            edge, those in R in the columns C = " (set(c)) ", counted from the right edge (both marked). S has the other columns of
            the left half, and Q those of the right half. The pair (A, C) is the frame; all rows are open." }
    }
}

fn set(bits: u32) -> String {
    let members = (0..u32::BITS).filter(|bit| bits >> bit & 1 == 1).map(|bit| bit.to_string());
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

/// Returns the section with the sizes of a frame's lists.
fn lists(plan: &Plan, survey: &mut Survey, unit: u64) -> Markup {
    let board = plan.spec().board;
    let (group, a, c) = survey.frame(unit);
    let command = format!("queensctl frames --n {board} --a {a} --c {c}");
    if board.n() > MAX_SURVEYED {
        return html! { section { h2 { "Lists" } p { "They are long. " code { (command) } " shows their lengths." } } };
    }
    let sizes = survey.lists(group, a, c, EFFORT, &mut random_below);
    html! {
        section aria-labelledby="lists-h" {
            h2 id="lists-h" { "Lists" }
            p { "A worker visits no solution. It lists the ways to fill each quadrant, joins P with Q and S with R if their queens
                do not attack each other, and counts the pairs of an upper and a lower half board that share no diagonal. It tests 512
                pairs at once, so that a core counts about a billion solutions per second of a large board." }
            table {
                @for (what, value) in sizes.rows() { tr { th scope="row" { (what) } td { (value) } } }
            }
            p.sub { code { (command) } " shows these numbers; ~ marks estimates. A run counts some frames only, and each of their solutions for
                all its images." }
        }
    }
}

fn steps(plan: &Plan, survey: &mut Survey, unit: u64) -> Markup {
    let (group, a, c) = survey.frame(unit);
    let halves = survey.half_boards(group, a, c, &|_| true);
    let assembled = Quarters::new(plan.spec().board).assemble(a, c);
    let [tops, bottoms] = &halves;
    // The bits that conflict in each pair.
    let pairs = tops.iter().flat_map(|top| bottoms.iter().map(move |bottom| top & bottom));
    let mut left: Vec<u64> = pairs.collect();
    let bits = std::iter::from_fn(|| {
        let conflicts = |bit: &u32| left.iter().filter(|pair| *pair >> bit & 1 == 1).count();
        let bit = (0..u64::BITS).max_by_key(conflicts)?;
        let before = left.len();
        left.retain(|pair| pair >> bit & 1 == 0);
        (left.len() < before).then_some((bit, before - left.len(), before))
    });
    let bits: Vec<_> = bits.take(MAX_LISTED).collect();
    let used = halves.iter().flatten().fold(1, |all, key| all | key);
    let width = (u64::BITS - used.leading_zeros()) as usize;
    let [above, below] = assembled.quarter_pairs;
    html! {
        section aria-labelledby="steps-h" {
            h2 id="steps-h" { "The join, step by step" }
            ol {
                li { (plural(above as u64, "pair")) " of P and Q and " (plural(below as u64, "pair")) " of R and S have complementary rows;
                    " (tops.len()) " and " (bottoms.len()) " of them fit." }
                li { "Each half board becomes a key: a bit for each diagonal that both halves cross, set if a queen attacks it."
                    div.pair.even { @for (name, keys) in ["Above", "Below"].iter().zip(&halves) {
                        pre { (name) @for key in keys.iter().take(MAX_LISTED) { (format!("\n{key:0width$b}")) }
                            @if keys.len() > MAX_LISTED { "\nand " (keys.len() - MAX_LISTED) " more" } }
                    } }
                }
                li { (plural(tops.len() as u64 * bottoms.len() as u64, "pair")) " of keys: "
                    @for (place, (bit, out, of)) in bits.iter().enumerate() {
                        @if place > 0 { ", " } "bit " (bit) " rules out " (thousands(*out as u128)) " of " (thousands(*of as u128))
                    } @if left.len() > assembled.solutions.len() { " …" } }
                li { (plural(assembled.solutions.len() as u64, "pair")) " share no bit: these are the solutions of the frame (the columns
                    by row)." pre {
                    @for (place, solution) in assembled.solutions.iter().take(MAX_LISTED).enumerate() {
                        @if place > 0 { "\n" } (Style::Line.draw(solution, 1).trim_end())
                    }
                    @if assembled.solutions.len() > MAX_LISTED { "\nand " (assembled.solutions.len() - MAX_LISTED) " more" }
                } }
            }
        }
    }
}
