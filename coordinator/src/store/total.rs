//! What the total of a complete run is checked against: the symmetric solutions of its board, and the
//! published total.

use std::{fmt, ops::ControlFlow};

use common::{
    board::Board,
    count::CountError,
    known::known_counts,
    symmetric::{self, HalfTurn},
    tally::{BadTally, Counts},
};

/// Up to this board the symmetric solutions are enumerated anew (about a second); above it the
/// published numbers of them are used.
const ENUMERATED_N: u8 = 20;

/// The checks that a complete run's total passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The total with the symmetric solutions, consistent by Burnside's formula; None where their
    /// number is neither published nor quickly enumerated.
    pub counts: Option<Counts>,
    /// The symmetric solutions were enumerated anew.
    pub enumerated: bool,
    /// The total is the published one; false where none is published.
    pub published: bool,
}

/// What contradicts the total of a complete run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WrongTotal {
    /// The symmetric solutions that it is compared with cannot be counted.
    #[error(transparent)]
    Symmetric(#[from] CountError),
    /// It cannot be, with so many symmetric solutions.
    #[error(transparent)]
    Inconsistent(#[from] BadTally),
    /// Others have found another.
    #[error("the total {solutions} is not the published {published} for N = {board}")]
    NotPublished {
        /// The board.
        board: Board,
        /// The total here.
        solutions: u128,
        /// The total there.
        published: u128,
    },
}

impl Checks {
    /// Checks the total of a complete run, or says what contradicts it.
    pub(super) fn of(board: Board, solutions: u128) -> Result<Self, WrongTotal> {
        let known = known_counts(board);
        let enumerated = board.n() <= ENUMERATED_N;
        let symmetric = if enumerated {
            let half = HalfTurn::new(board).count(&|| ControlFlow::Continue(()))?;
            Some((half, symmetric::quarter_turn(board)))
        } else {
            known.map(|known| (known.half_turn(), known.quarter_turn()))
        };
        let counts = symmetric
            .map(|(half, quarter)| Counts::new(solutions, half, quarter))
            .transpose()?;
        if let Some(known) = known.filter(|known| known.all() != solutions) {
            let published = known.all();
            return Err(WrongTotal::NotPublished {
                board,
                solutions,
                published,
            });
        }
        Ok(Self {
            counts,
            enumerated,
            published: known.is_some(),
        })
    }

    /// What passed, in words, with the total.
    pub(super) fn describe(&self, f: &mut fmt::Formatter<'_>, solutions: u128) -> fmt::Result {
        write!(f, "  solutions  {solutions}")?;
        if let Some(counts) = &self.counts {
            let source = if self.enumerated {
                "enumerated anew"
            } else {
                "as published"
            };
            write!(
                f,
                ", unique {}\n  checks     {} half-turn and {} quarter-turn solutions, {source},\n             \
                 agree by Burnside's formula",
                counts.unique(),
                counts.half_turn(),
                counts.quarter_turn()
            )?;
        }
        let published = if self.published {
            "the total is the published one"
        } else {
            "nobody has published a total for this board"
        };
        write!(f, "\n             {published}")
    }
}
