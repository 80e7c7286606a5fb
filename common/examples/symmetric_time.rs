//! Prints half(N) and quarter(N) with the seconds each took on one core.
//!
//! `cargo run --release -p common --example symmetric_time -- 20 27`

use std::{ops::ControlFlow, time::Instant};

use common::{
    board::Board,
    symmetric::{HalfTurn, quarter_turn},
};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u8>());
    let (Some(Ok(first)), Some(Ok(last))) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: symmetric_time FIRST_N LAST_N");
        std::process::exit(2);
    };
    for n in first..=last {
        let Ok(board) = Board::new(n) else { continue };
        let start = Instant::now();
        let half = HalfTurn::new(board).count(&|| ControlFlow::Continue(()));
        let half_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let quarter = quarter_turn(board);
        let quarter_seconds = start.elapsed().as_secs_f64();
        let half = half.expect("never told to stop");
        println!(
            "{n:>2}  half {half:>15} {half_seconds:>9.3} s   quarter {quarter:>8} {quarter_seconds:>9.3} s"
        );
    }
}
