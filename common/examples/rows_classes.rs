//! Counts solutions up to symmetry one by one and compares with Burnside's formula.
//!
//! ```text
//! cargo run --release -p common --example rows_classes -- [LAST_N]
//! ```

#[path = "support/cpu.rs"]
mod cpu;

use common::{
    board::Board, count::Unwatched, kernel::Kernel, known::known_counts, rows, tally::Classes,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let last: Board = std::env::args().nth(1).as_deref().unwrap_or("16").parse()?;
    println!(
        "{:>3}{:>14}{:>12}{:>12}{:>16}{:>9}  Burnside",
        "N", "asymmetric", "half turn", "quarter", "unique", "seconds"
    );
    for n in 1..=last.n() {
        let board = Board::new(n)?;
        let start = cpu::seconds();
        let found = rows::classes(board, Kernel::best(), &Unwatched)?;
        let seconds = cpu::seconds() - start;
        let Classes {
            asymmetric,
            half_turn,
            quarter_turn,
        } = found;
        let unique = asymmetric + half_turn + quarter_turn;
        let verdict = match known_counts(board) {
            Some(known) if known.classes() == found => "equal",
            Some(_) => "DIFFERS",
            None => "unknown",
        };
        println!(
            "{n:>3}{asymmetric:>14}{half_turn:>12}{quarter_turn:>12}{unique:>16}{seconds:>9.3}  {verdict}"
        );
    }
    Ok(())
}
