//! The picture of a run for link previews.

use textbook::boards::CROWN;

const WIDTH: usize = 1200;
const HEIGHT: usize = 630;
const MARGIN: usize = 40;
/// Side of the board.
const SIDE: usize = HEIGHT - 2 * MARGIN;

/// Colors of the ground, the light and dark squares, and queens and text.
const PALETTE: [[u8; 3]; 4] = [[246, 247, 248], [243, 234, 216], [217, 196, 160], [51, 38, 26]];
const INK: u8 = 3;

/// Characters of 5 by 7 points, with a bit for each point of a row.
const GLYPHS: [(char, [u8; 7]); 13] = [
    ('0', [14, 17, 17, 17, 17, 17, 14]),
    ('1', [4, 12, 4, 4, 4, 4, 14]),
    ('2', [14, 17, 1, 2, 4, 8, 31]),
    ('3', [31, 2, 4, 2, 1, 17, 14]),
    ('4', [2, 6, 10, 18, 31, 2, 2]),
    ('5', [31, 16, 30, 1, 1, 17, 14]),
    ('6', [6, 8, 16, 30, 17, 17, 14]),
    ('7', [31, 1, 2, 4, 8, 8, 8]),
    ('8', [14, 17, 17, 14, 17, 17, 14]),
    ('9', [14, 17, 17, 15, 1, 2, 12]),
    (',', [0, 0, 0, 0, 0, 4, 8]),
    ('N', [17, 25, 21, 19, 17, 17, 17]),
    ('=', [0, 0, 31, 0, 31, 0, 0]),
];

/// Groups of three digits in a line.
const GROUPS_IN_LINE: usize = 3;

/// Draws queens, by row, next to a title and a number whose digits are grouped.
pub(super) fn png(queens: &[u8], title: &str, number: &str) -> Vec<u8> {
    let mut pixels = vec![0; WIDTH * HEIGHT];
    for place in 0..if queens.is_empty() { 0 } else { SIDE * SIDE } {
        let [down, across] = [place / SIDE, place % SIDE];
        let on_board = |pixel: usize| (pixel as f32 + 0.5) * queens.len() as f32 / SIDE as f32;
        let square = |pixel: usize| pixel * queens.len() / SIDE;
        let (row, column) = (square(down), square(across));
        let is_queen = usize::from(queens[row]) == column
            && is_inside(on_board(across) - column as f32, on_board(down) - row as f32);
        let color = if is_queen { INK } else { 1 + u8::from((row + column) % 2 == 1) };
        pixels[(MARGIN + down) * WIDTH + MARGIN + across] = color;
    }
    let groups: Vec<_> = number.split_inclusive(',').collect();
    let lines = groups.chunks(GROUPS_IN_LINE).map(|line| (line.concat(), 7));
    let mut top = 2 * MARGIN;
    for (text, scale) in [(title.to_owned(), 14)].into_iter().chain(lines) {
        for (place, character) in text.chars().enumerate() {
            let rows = GLYPHS.iter().find(|(known, _)| *known == character);
            for point in 0..rows.map_or(0, |_| 35 * scale * scale) {
                let [down, across] = [point / (5 * scale), point % (5 * scale)];
                if rows.is_some_and(|(_, rows)| rows[down / scale] >> (4 - across / scale) & 1 == 1)
                {
                    let left = 2 * MARGIN + SIDE + 6 * scale * place;
                    pixels[(top + down) * WIDTH + left + across] = INK;
                }
            }
        }
        top += 11 * scale;
    }
    let mut file = Vec::new();
    let [width, height] = [WIDTH, HEIGHT].map(|side| u32::try_from(side).expect("a small picture"));
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette(PALETTE.as_flattened());
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.expect("a vector takes all bytes of this size");
    file
}

/// Returns whether a point of a square of side 1 is inside the outline of a queen.
fn is_inside(x: f32, y: f32) -> bool {
    let next = CROWN.iter().cycle().skip(1);
    let crossings = CROWN.iter().zip(next).filter(|((ax, ay), (bx, by))| {
        (*ay > y) != (*by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax)
    });
    crossings.count() % 2 == 1
}
