//! The outermost ring: one queen in each outer row and column, one placement of each orbit.

use crate::board::Board;

/// A placement of the outermost rows and columns, by where each side has its queen. A queen in a
/// corner belongs to two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Border {
    /// Column of the queen in row 0.
    pub(super) top: u8,
    /// Column of the queen in row N - 1.
    pub(super) bottom: u8,
    /// Row of the queen in column 0.
    pub(super) left: u8,
    /// Row of the queen in column N - 1.
    pub(super) right: u8,
}

impl Border {
    /// The queens as (row, column), each once.
    pub(super) fn queens(self, board: Board) -> impl Iterator<Item = (u8, u8)> + Clone {
        let last = board.n() - 1;
        let all = [
            (0, self.top),
            (last, self.bottom),
            (self.left, 0),
            (self.right, last),
        ];
        (0..4)
            .filter(move |&i| !all[..i].contains(&all[i]))
            .map(move |i| all[i])
    }

    /// Whether no queen attacks another, by row or column too: then every side has just one.
    fn is_sound(self, board: Board) -> bool {
        let mut queens = self.queens(board);
        while let Some((row, column)) = queens.next() {
            let attacked = queens.clone().any(|(other_row, other_column)| {
                row == other_row
                    || column == other_column
                    || row.abs_diff(other_row) == column.abs_diff(other_column)
            });
            if attacked {
                return false;
            }
        }
        true
    }

    /// Mirrored left to right.
    fn mirrored(self, board: Board) -> Self {
        let last = board.n() - 1;
        let Self {
            top,
            bottom,
            left,
            right,
        } = self;
        Self {
            top: last - top,
            bottom: last - bottom,
            left: right,
            right: left,
        }
    }

    /// Given a quarter turn: (row, column) goes to (column, N - 1 - row).
    fn turned(self, board: Board) -> Self {
        let last = board.n() - 1;
        let Self {
            top,
            bottom,
            left,
            right,
        } = self;
        Self {
            top: last - left,
            right: top,
            bottom: last - right,
            left: bottom,
        }
    }

    /// All eight images under the symmetries of the square, itself among them.
    fn images(self, board: Board) -> [Self; 8] {
        let mut images = [self; 8];
        for i in 1..8 {
            let last = images[i - 1];
            images[i] = if i == 4 {
                self.mirrored(board)
            } else {
                last.turned(board)
            };
        }
        images
    }

    /// The image with the smallest key stands for its orbit. All have the same number of solutions,
    /// but rows are always filled from the top, and so it matters which side is up: with the bottom
    /// queen first in the key, near its corner, a search takes 0.78 of what it takes on average
    /// (0.72 would be the best image of each orbit). The key also orders the units: borders that
    /// differ in the top queen alone follow each other, because they are counted together.
    fn key(self) -> u32 {
        u32::from_be_bytes([self.bottom, self.left, self.right, self.top])
    }

    /// 0 if another image has a smaller key, else 8 / (number of images equal to this one): then
    /// the weights of the images of any one solution's border sum to the size of that solution's
    /// orbit, whether the solution is as symmetric as its border or less.
    pub(super) fn weight(self, board: Board) -> u8 {
        let mut equal = 0;
        for image in self.images(board) {
            if image.key() < self.key() {
                return 0;
            }
            equal += u8::from(image == self);
        }
        8 / equal
    }
}

/// One border of each orbit with its weight, in ascending order of the key.
pub(super) fn representatives(board: Board) -> Vec<(Border, u8)> {
    let sides = || 0..board.n();
    let mut found = Vec::new();
    for bottom in sides() {
        for left in sides() {
            for right in sides() {
                for top in sides() {
                    let border = Border {
                        top,
                        bottom,
                        left,
                        right,
                    };
                    // The weight first: it rejects seven of eight and is cheaper.
                    let weight = border.weight(board);
                    if weight > 0 && border.is_sound(board) {
                        found.push((border, weight));
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_orbit_is_represented_once() {
        for n in 1..=9 {
            let board = Board::new(n).unwrap();
            let chosen = representatives(board);
            assert!(chosen.is_sorted_by_key(|(border, _)| border.key()));
            let mut sound = 0;
            for key in 0..u32::from(n).pow(4) {
                #[allow(clippy::cast_possible_truncation)]
                let [top, bottom, left, right] =
                    [0, 1, 2, 3].map(|side| (key / u32::from(n).pow(side) % u32::from(n)) as u8);
                let border = Border {
                    top,
                    bottom,
                    left,
                    right,
                };
                if !border.is_sound(board) {
                    continue;
                }
                sound += 1;
                let images = border.images(board);
                let standing: Vec<_> = chosen
                    .iter()
                    .filter(|(other, _)| images.contains(other))
                    .collect();
                let [(standing, weight)] = standing[..] else {
                    panic!(
                        "N = {n}: {border:?} is represented {} times",
                        standing.len()
                    );
                };
                let equal = images.iter().filter(|image| *image == standing).count();
                assert_eq!(usize::from(*weight) * equal, 8, "N = {n}: {border:?}");
            }
            // An orbit has as many borders as its weight says, except where a reflection fixes one.
            let orbits: u32 = chosen.iter().map(|&(_, weight)| u32::from(weight)).sum();
            assert_eq!(orbits, sound, "N = {n}");
        }
    }

    #[test]
    fn images_are_the_symmetries_of_the_square() {
        let board = Board::new(8).unwrap();
        let border = Border {
            top: 2,
            bottom: 4,
            left: 5,
            right: 3,
        };
        let images = border.images(board);
        for (i, image) in images.iter().enumerate() {
            assert!(!images[..i].contains(image));
            assert!(image.images(board).contains(&border));
        }
        assert_eq!(images[3].turned(board), border);
        assert_eq!(images[4].mirrored(board), border);
    }
}
