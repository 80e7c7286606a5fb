//! The museum: boards, one solution of huge boards, and the techniques and tables that this project
//! comes from. Nothing here needs a coordinator.

mod climb;
mod cpu;
mod documents;
mod fold;
mod frames;
mod ladder;
mod picture;
mod place;
mod show;
mod speeds;

use std::io::{IsTerminal as _, Read as _};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::examples;
use coordinator::{exit::Exit, text::tell};

/// What needs no coordinator.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum MuseumCommand {
    /// Shows solutions of a board in many styles, checks a pasted board, draws SVG and PNG
    #[command(after_help = examples::SHOW)]
    Show(show::ShowOptions),
    /// Finds one solution of a board, however large
    #[command(after_help = examples::PLACE)]
    Place(place::PlaceOptions),
    /// Shows how far the textbook techniques get in a given time, beside the methods of this
    /// program, on one thread; or the tables of the texts that describe them
    #[command(after_help = examples::LADDER)]
    Ladder(ladder::LadderOptions),
    /// Shows how large the lists of method frames are, or opens one frame
    #[command(after_help = examples::FRAMES)]
    Frames(frames::FramesOptions),
}

/// Runs the command.
pub(super) fn main(command: &MuseumCommand) -> anyhow::Result<Exit> {
    match command {
        MuseumCommand::Show(options) => show::show(options),
        MuseumCommand::Place(options) => place::place(options),
        MuseumCommand::Ladder(options) => ladder::ladder(options),
        MuseumCommand::Frames(options) => frames::frames(options),
    }
}

/// Files to draw boards to.
#[derive(Clone, Debug, Default, Args)]
struct Drawings {
    /// Draws the boards to this SVG file instead
    #[arg(long, value_name = "FILE")]
    svg: Option<std::path::PathBuf>,

    /// Draws the boards to this PNG file instead
    #[arg(long, value_name = "FILE")]
    png: Option<std::path::PathBuf>,
}

impl Drawings {
    fn are_wanted(&self) -> bool {
        self.svg.is_some() || self.png.is_some()
    }

    fn draw(&self, boards: &[common::boards::Solution]) -> anyhow::Result<()> {
        let cannot = |path: &std::path::Path| format!("cannot write {}", path.display());
        if let Some(path) = &self.svg {
            let text = common::boards::svg(boards, picture::across(boards.len()));
            std::fs::write(path, text).with_context(|| cannot(path))?;
        }
        if let Some(path) = &self.png {
            let bytes = picture::png(boards).context("the picture cannot be encoded")?;
            std::fs::write(path, bytes).with_context(|| cannot(path))?;
        }
        Ok(())
    }
}

/// The text of an option: itself, what stands in a file (`@FILE`), or standard input (`-`).
fn text_of(given: &str) -> anyhow::Result<String> {
    if let Some(path) = given.strip_prefix('@') {
        return std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    }
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    let mut input = std::io::stdin();
    if input.is_terminal() {
        tell("paste a board and end it with Ctrl-D");
    }
    let read = input.read_to_string(&mut text);
    read.context("cannot read standard input")?;
    Ok(text)
}
