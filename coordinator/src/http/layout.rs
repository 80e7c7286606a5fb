//! The common parts of all pages. Pages work without scripts; scripts update them.

use std::fmt::Display;

use axum::response::Html;
use maud::{DOCTYPE, Markup, html};
use view::Figure;

pub(super) fn page(title: &str, body: &Markup) -> Html<String> {
    page_with(title, &html! {}, body)
}

/// Returns a page with more elements in its head.
pub(super) fn page_with(title: &str, head: &Markup, body: &Markup) -> Html<String> {
    document(title, &["uplot.js", "grid.js", "charts.js", "app.js"], head, body)
}

/// Returns a page with these scripts and more elements in its head.
pub(super) fn document(
    title: &str,
    scripts: &[&str],
    head: &Markup,
    body: &Markup,
) -> Html<String> {
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                (head)
                link rel="icon" href="/assets/icon.svg";
                link rel="stylesheet" href="/assets/uplot.css";
                link rel="stylesheet" href="/assets/app.css";
                noscript { meta http-equiv="refresh" content="30"; }
                @for script in scripts { script defer src=(format!("/assets/{script}")) {} }
            }
            (body)
        }
    };
    Html(whole.into_string())
}

/// Returns the dialog that confirms a command; the script fills in the texts.
pub(super) fn dialog() -> Markup {
    html! {
        dialog id="ask" aria-labelledby="ask-what" {
            h2 id="ask-what" {}
            p id="ask-why" {}
            form method="dialog" {
                p id="ask-type" hidden { label { "Type " b id="ask-digits" {} " to confirm: "
                    input id="ask-typed" size="4" maxlength="4" autocomplete="off" spellcheck="false"; } }
                button value="no" id="ask-no" autofocus {}
                " " button.danger value="yes" id="ask-yes" {}
            }
        }
    }
}

/// An operator's command on a run or a worker.
pub(super) struct Command<S: 'static> {
    /// The last segment of the command's path.
    pub(super) name: &'static str,
    /// States in which the command applies.
    pub(super) states: &'static [S],
    pub(super) verb: &'static str,
    /// Consequences and label of the declining button; `None` without confirmation.
    pub(super) question: Option<[&'static str; 2]>,
}

/// Returns the buttons of commands; those for other states are hidden.
///
/// Commands with a question also ask for the `digits`.
pub(super) fn buttons<S: Display + PartialEq>(
    commands: &[Command<S>],
    path: &str,
    what: &str,
    state: Option<S>,
    digits: Option<&str>,
) -> Markup {
    let joined = |states: &[S]| states.iter().map(S::to_string).collect::<Vec<_>>().join(" ");
    html! {
        @for Command { name, states, verb, question } in commands {
            @let label = format!("{verb} {what}");
            button type="button" data-post=(format!("{path}/{name}")) data-from=(joined(states))
                hidden[!state.as_ref().is_some_and(|state| states.contains(state))] data-ask=[question.map(|_| &label)]
                data-why=[question.map(|[why, _]| why)] data-no=[question.map(|[_, no]| no)]
                data-type=[question.and(digits)]
                aria-label=(label) { (verb) @if question.is_some() { "…" } }
            " "
        }
    }
}

/// Returns a figure with its long text on hover.
pub(super) fn figure(name: &str, figure: &Figure) -> Markup {
    let digits = figure.full.as_ref();
    html! { span data-figure=(name) title=[digits] data-digits=[digits] { (figure.short) } }
}
