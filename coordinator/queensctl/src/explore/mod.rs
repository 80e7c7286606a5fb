//! Offline commands about boards, textbook techniques and published tables.

mod benchmark;
mod compare;
mod documents;
mod frames;
mod show;
mod solve;

use std::{
    ffi::OsStr,
    io::{IsTerminal as _, Read as _},
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use cli::exit::{BadUsage, Exit};
use proto::connect::file_of;
use textbook::boards::{CROWN, Solution};
use view::text::eprint_line;

/// Commands about boards and methods.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum ExploreCommand {
    /// Show solutions of a board in many styles, check a pasted board, draw pictures
    Show(show::ShowOptions),
    /// Find one solution of a board of any size
    Solve(solve::SolveOptions),
    /// Compare textbook techniques and methods on one thread, or with published tables
    Compare(compare::CompareOptions),
    /// Show the lengths of the lists of method frames, or one frame in detail
    Frames(frames::FramesOptions),
}

pub(super) fn main(command: &ExploreCommand) -> anyhow::Result<Exit> {
    match command {
        ExploreCommand::Show(options) => show::show(options),
        ExploreCommand::Solve(options) => solve::solve(options),
        ExploreCommand::Compare(options) => compare::compare(options),
        ExploreCommand::Frames(options) => frames::frames(options),
    }
}

/// Files for pictures of boards.
#[derive(Clone, Debug, Default, Args)]
struct Drawings {
    /// Draw the boards to this SVG file instead
    #[arg(long, value_name = "FILE")]
    svg: Option<std::path::PathBuf>,

    /// Draw the boards to this PNG file instead
    #[arg(long, value_name = "FILE")]
    png: Option<std::path::PathBuf>,
}

impl Drawings {
    fn are_wanted(&self) -> bool {
        self.svg.is_some() || self.png.is_some()
    }

    fn draw(&self, boards: &[Solution]) -> anyhow::Result<()> {
        let cannot = |path: &std::path::Path| format!("cannot write {}", path.display());
        if let Some(path) = &self.svg {
            let text = textbook::boards::svg(boards, across(boards.len()));
            std::fs::write(path, text).with_context(|| cannot(path))?;
        }
        if let Some(path) = &self.png {
            let bytes = png(boards).context("cannot encode the picture")?;
            std::fs::write(path, bytes).with_context(|| cannot(path))?;
        }
        Ok(())
    }
}

/// Returns an option's text: the value, the contents of `@FILE`, or stdin (`-`).
fn text_of(given: &OsStr) -> anyhow::Result<String> {
    if let Some(path) = file_of(given) {
        let text = std::fs::read_to_string(path);
        return text.with_context(|| format!("cannot read {}", path.display()));
    }
    if given != "-" {
        let text =
            given.to_str().ok_or_else(|| BadUsage("--check: the text is not UTF-8".to_owned()));
        return Ok(text?.to_owned());
    }
    let mut text = String::new();
    let mut input = std::io::stdin();
    if input.is_terminal() {
        eprint_line("paste a board, then press Ctrl-D");
    }
    let read = input.read_to_string(&mut text);
    read.context("cannot read standard input")?;
    Ok(text)
}

/// Red, green and blue of light squares, dark squares, queens and the margin.
const PALETTE: [u8; 12] = [0xf2, 0xe3, 0xc6, 0xb5, 0x87, 0x5a, 0x22, 0x22, 0x22, 0xff, 0xff, 0xff];
const LIGHT: u8 = 0;
const QUEEN: u8 = 2;
const BACKGROUND: u8 = 3;

/// Maximum and minimum pixels of a square's side.
const SQUARE: u32 = 48;
const LEAST_SQUARE: u32 = 3;
/// Preferred maximum of a board's side.
const BOARD: u32 = 1600;
const MARGIN: u32 = 8;

/// Returns the number of `boards` per row of the drawing.
fn across(boards: usize) -> u32 {
    let side = boards.isqrt() + usize::from(boards.isqrt().pow(2) < boards);
    u32::try_from(side).unwrap_or(u32::MAX)
}

/// Draws boards of one size as a PNG file.
fn png(boards: &[Solution]) -> Result<Vec<u8>, png::EncodingError> {
    let n = boards[0].n();
    let square = (BOARD / n).clamp(LEAST_SQUARE, SQUARE);
    let columns = across(boards.len()).max(1);
    let count = u32::try_from(boards.len()).unwrap_or(u32::MAX);
    let pitch = n * square + 2 * MARGIN;
    let (width, height) = (columns * pitch, count.div_ceil(columns) * pitch);
    let mut pixels = vec![BACKGROUND; width as usize * height as usize];
    for (at, board) in (0..).zip(boards) {
        let left = at % columns * pitch + MARGIN;
        let top = at / columns * pitch + MARGIN;
        for y in 0..n * square {
            let start = (top + y) as usize * width as usize + left as usize;
            for (x, pixel) in (0..n * square).zip(&mut pixels[start..]) {
                let (row, column) = (y / square, x / square);
                let queen = board.has(row, column) && is_crown(x % square, y % square, square);
                let dark = u8::from((row + column) % 2 == 1);
                *pixel = if queen { QUEEN } else { LIGHT + dark };
            }
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(PALETTE.as_slice());
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// Returns whether a pixel's center lies inside the queen's outline.
/// A ray from such a point crosses an odd number of edges.
fn is_crown(x: u32, y: u32, square: u32) -> bool {
    let center = |at: u32| (at as f32 + 0.5) / square as f32;
    let (x, y) = (center(x), center(y));
    let edges = CROWN.iter().zip(CROWN.iter().cycle().skip(1));
    let crossed = edges.filter(|&(a, b)| {
        (a.1 > y) != (b.1 > y) && x < a.0 + (y - a.1) / (b.1 - a.1) * (b.0 - a.0)
    });
    crossed.count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_a_queen_in_the_middle_of_its_squares_and_nowhere_else() {
        let board = Solution::new(vec![1, 3, 0, 2]).unwrap();
        let bytes = png(std::slice::from_ref(&board)).unwrap();
        let decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (4 * SQUARE + 16, 4 * SQUARE + 16));
        for row in 0..4 {
            for column in 0..4 {
                let middle = |at: u32| MARGIN + at * SQUARE + SQUARE / 2;
                let at = middle(row) * info.width + middle(column);
                let queen = pixels[at as usize] == QUEEN;
                assert_eq!(queen, board.has(row, column), "{row}, {column}");
            }
        }
    }
}
