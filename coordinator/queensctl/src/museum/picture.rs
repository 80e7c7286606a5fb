//! Boards as pixels.

use common::boards::{CROWN, Solution};

/// Light squares, dark squares, queens, and what surrounds boards: red, green, blue.
const PALETTE: [u8; 12] = [
    0xf2, 0xe3, 0xc6, 0xb5, 0x87, 0x5a, 0x22, 0x22, 0x22, 0xff, 0xff, 0xff,
];
const LIGHT: u8 = 0;
const QUEEN: u8 = 2;
const AROUND: u8 = 3;

/// Pixels of a square's side where a board has few squares, and where it has very many.
const SQUARE: u32 = 48;
const LEAST_SQUARE: u32 = 3;
/// Pixels that a board should not pass.
const BOARD: u32 = 1600;
const MARGIN: u32 = 8;

/// How many of `boards` to draw side by side.
pub(super) fn across(boards: usize) -> u32 {
    let side = boards.isqrt() + usize::from(boards.isqrt().pow(2) < boards);
    u32::try_from(side).unwrap_or(u32::MAX)
}

/// Boards of one size as a PNG file.
pub(super) fn png(boards: &[Solution]) -> Result<Vec<u8>, png::EncodingError> {
    let n = boards[0].n();
    let square = (BOARD / n).clamp(LEAST_SQUARE, SQUARE);
    let columns = across(boards.len()).max(1);
    let count = u32::try_from(boards.len()).unwrap_or(u32::MAX);
    let pitch = n * square + 2 * MARGIN;
    let (width, height) = (columns * pitch, count.div_ceil(columns) * pitch);
    let mut pixels = vec![AROUND; width as usize * height as usize];
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

/// Whether a pixel's centre lies inside the queen's outline: a ray from it crosses an odd number of
/// edges.
fn is_crown(x: u32, y: u32, square: u32) -> bool {
    let centre = |at: u32| (at as f32 + 0.5) / square as f32;
    let (x, y) = (centre(x), centre(y));
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
        assert_eq!(
            (info.width, info.height),
            (4 * SQUARE + 16, 4 * SQUARE + 16)
        );
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
