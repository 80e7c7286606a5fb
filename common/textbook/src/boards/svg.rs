//! Boards as SVG drawings.

use std::fmt::Write as _;

use super::solution::Solution;

/// Outline of a queen in a square of side 1: (right, down).
///
/// The points run clockwise from the left of the foot.
pub const CROWN: [(f32, f32); 16] = [
    (0.24, 0.84),
    (0.27, 0.62),
    (0.14, 0.30),
    (0.32, 0.50),
    (0.32, 0.20),
    (0.44, 0.46),
    (0.47, 0.28),
    (0.50, 0.14),
    (0.53, 0.28),
    (0.56, 0.46),
    (0.68, 0.20),
    (0.68, 0.50),
    (0.86, 0.30),
    (0.73, 0.62),
    (0.76, 0.84),
    (0.50, 0.87),
];

/// Pixels of a square's side.
const SQUARE: u32 = 32;
/// Pixels around a board.
const MARGIN: u32 = 8;

/// Draws boards of one size, `across` per row, as an SVG document.
///
/// # Panics
/// If there are no boards, or none per row.
pub fn svg(boards: &[Solution], across: u32) -> String {
    let n = boards[0].n();
    let count = u32::try_from(boards.len()).expect("a sheet has few boards");
    let across = across.min(count);
    let pitch = n * SQUARE + 2 * MARGIN;
    let (width, height) = (across * pitch, count.div_ceil(across) * pitch);
    let outline: Vec<_> = CROWN
        .iter()
        .map(|&(x, y)| format!("{:.1} {:.1}", x * SQUARE as f32, y * SQUARE as f32))
        .collect();
    let dark: String = (0..n * n)
        .map(|at| (at % n, at / n))
        .filter(|(x, y)| (x + y) % 2 == 1)
        .map(|(x, y)| format!("M{} {}h{SQUARE}v{SQUARE}h-{SQUARE}z", x * SQUARE, y * SQUARE))
        .collect();
    let side = n * SQUARE;
    let mut text = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{count} × {n} queens, none attacking another</title>
<defs>
<g id="board"><path fill="#f2e3c6" d="M0 0h{side}v{side}h-{side}z"/><path fill="#b5875a" d="{dark}"/></g>
<path id="queen" fill="#222" stroke="#f2e3c6" stroke-width="0.8" d="M{}z"/>
</defs>
"##,
        outline.join("L")
    );
    for (at, board) in (0..).zip(boards) {
        let (x, y) = (at % across * pitch + MARGIN, at / across * pitch + MARGIN);
        let mut add = |line: &str| text.push_str(line);
        add(&format!("<g transform=\"translate({x} {y})\"><use href=\"#board\"/>"));
        for (row, column) in (0..).zip(board.columns()) {
            let (x, y) = (column * SQUARE, row * SQUARE);
            add(&format!("<use href=\"#queen\" x=\"{x}\" y=\"{y}\"/>"));
        }
        add("</g>\n");
    }
    writeln!(text, "</svg>").expect("writing to a string cannot fail");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boards::Solutions;
    use common::board::Board;

    #[test]
    fn a_sheet_has_every_queen_of_every_board() {
        let all: Vec<_> = Solutions::new(Board::new(6).unwrap()).collect();
        let sheet = svg(&all, 3);
        assert_eq!(sheet.matches("href=\"#queen\"").count(), 24);
        assert_eq!(sheet.matches("href=\"#board\"").count(), 4);
        assert!(sheet.contains("viewBox=\"0 0 624 416\""), "{sheet}");
    }
}
