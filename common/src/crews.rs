//! How the threads of a machine are divided into crews.
//!
//! A crew shares the memory of one count (`count::Setup`), so that few crews of many threads need
//! less memory than many of few. But the members of a crew wait for each other now and then: so there
//! are as many crews as the memory holds.
//!
//! ```
//! # use std::num::NonZeroU16;
//! use common::{board::Board, crews::{Crews, Machine}, method::Layout, plan::{Plan, PlanSpec}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plan = Plan::new(PlanSpec::new(Board::new(24)?, Layout::Frames))?;
//! let machine = Machine {
//!     threads: NonZeroU16::new(16).expect("not zero"),
//!     memory_bytes: 500 << 20,
//!     crews: None,
//! };
//! let crews = Crews::new(&plan, machine)?;
//! assert!((2..16).contains(&crews.number()));
//! # Ok(())
//! # }
//! ```

use std::{fmt, num::NonZeroU16};

use crate::{
    frames,
    plan::{Division, Plan},
    rows,
    setup::{Needs, SetupError},
};

/// What counts, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// How many threads.
    pub threads: NonZeroU16,
    /// The most memory that they may hold, in bytes.
    pub memory_bytes: u64,
    /// How many crews they are to make, at most one a thread; as many as the memory holds where nobody
    /// says.
    pub crews: Option<NonZeroU16>,
}

/// A machine, divided for the tasks of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crews {
    machine: Machine,
    number: NonZeroU16,
}

/// What one crew has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// How many threads.
    pub threads: NonZeroU16,
    /// The most memory that they may hold together, in bytes.
    pub memory_bytes: u64,
}

impl Crews {
    /// As many crews as the memory holds without cutting the lists of typical tasks of `plan` into
    /// pieces, one of all threads where it holds not even that; or as many as `machine` says.
    ///
    /// # Errors
    /// If a crew cannot count the plan's tasks in its part of the memory.
    pub fn new(plan: &Plan, machine: Machine) -> Result<Self, SetupError> {
        let needs = PlanNeeds::new(plan);
        let divided = |number| Self { machine, number };
        let fits = |crews: &Self| {
            let crew = crews.crew(0);
            needs.of(crew.threads).whole <= crew.memory_bytes
        };
        let crews = match machine.crews {
            Some(number) => divided(number.min(machine.threads)),
            None => {
                let numbers = (1..=machine.threads.get()).rev();
                let mut all = numbers.filter_map(NonZeroU16::new).map(divided);
                all.find(fits).unwrap_or(divided(NonZeroU16::MIN))
            }
        };
        let crew = crews.crew(0);
        let least = needs.of(crew.threads).least;
        if crew.memory_bytes < least {
            return Err(SetupError::Memory {
                given: machine.memory_bytes,
                least: least.saturating_mul(crews.number.get().into()),
            });
        }
        Ok(crews)
    }

    /// How many there are.
    pub fn number(&self) -> u16 {
        self.number.get()
    }

    /// What the crew with this number, from 0 on, has.
    ///
    /// # Panics
    /// If there is none.
    pub fn crew(&self, index: u16) -> Crew {
        assert!(index < self.number.get(), "crew {index} of {}", self.number);
        let (all, number) = (self.machine.threads.get(), self.number.get());
        let threads = all / number + u16::from(index < all % number);
        Crew {
            threads: NonZeroU16::new(threads).expect("no more crews than threads"),
            memory_bytes: self.machine.memory_bytes / u64::from(number),
        }
    }
}

/// `4 crews of 4`, `2 crews of 3 and 1 of 2`.
impl fmt::Display for Crews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, number) = (self.machine.threads.get(), self.number.get());
        let (small, larger) = (all / number, all % number);
        let crews = |number| if number == 1 { "crew" } else { "crews" };
        match (larger, number - larger) {
            (0, number) => write!(f, "{number} {} of {small}", crews(number)),
            (larger, others) => {
                let (large, crews) = (small + 1, crews(larger));
                write!(f, "{larger} {crews} of {large} and {others} of {small}")
            }
        }
    }
}

/// The memory that crews need for the tasks of one plan.
///
/// ```
/// # use std::num::NonZeroU16;
/// use common::{board::Board, crews::PlanNeeds, method::Layout, plan::{Plan, PlanSpec}};
///
/// let needs = PlanNeeds::new(&Plan::new(PlanSpec::new(Board::new(22)?, Layout::Frames))?);
/// let [one, four] = [1, 4].map(|threads| NonZeroU16::new(threads).expect("not zero"));
/// assert!(needs.least_bytes(one) <= needs.whole_bytes(one));
/// // A crew shares its lists: four threads need far less than four times as much.
/// assert!(needs.whole_bytes(four) < 2 * needs.whole_bytes(one));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PlanNeeds(ByMethod);

#[derive(Debug)]
enum ByMethod {
    Rows,
    Frames(frames::FrameNeeds),
}

impl PlanNeeds {
    /// Of `plan`.
    pub fn new(plan: &Plan) -> Self {
        Self(match plan.division() {
            Division::Rows(_) => ByMethod::Rows,
            Division::Frames(division) => ByMethod::Frames(frames::FrameNeeds::new(division)),
        })
    }

    /// The least with which so many threads can count together, in bytes.
    pub fn least_bytes(&self, threads: NonZeroU16) -> u64 {
        self.of(threads).least
    }

    /// With this much for so many threads together, the lists of typical tasks need not be cut into
    /// pieces, in bytes.
    pub fn whole_bytes(&self, threads: NonZeroU16) -> u64 {
        self.of(threads).whole
    }

    /// What a crew of so many threads needs.
    fn of(&self, threads: NonZeroU16) -> Needs {
        match &self.0 {
            ByMethod::Rows => {
                // Threads of one crew would take turns.
                let all = rows::memory_bytes().saturating_mul(threads.get().into());
                Needs {
                    least: all,
                    whole: all,
                }
            }
            ByMethod::Frames(needs) => needs.of(threads.get().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        board::Board,
        count::{Counter, Orientation, Setup},
        kernel::Kernel,
        method::Layout,
        plan::PlanSpec,
    };

    fn plan(n: u8, layout: Layout) -> Plan {
        Plan::new(PlanSpec::new(Board::new(n).unwrap(), layout)).unwrap()
    }

    fn machine(threads: u16, memory_bytes: u64) -> Machine {
        Machine {
            threads: NonZeroU16::new(threads).unwrap(),
            memory_bytes,
            crews: None,
        }
    }

    #[test]
    fn memory_decides_how_many_crews_there_are() {
        let plan = plan(22, Layout::Frames);
        let mut before = 0;
        for mib in [50, 400, 1_000, 2_000, 100_000] {
            let crews = Crews::new(&plan, machine(16, mib << 20)).unwrap();
            assert!(crews.number() >= before, "{mib} MiB: {crews}");
            before = crews.number();
            let members = (0..before).map(|at| crews.crew(at).threads.get());
            assert_eq!(members.sum::<u16>(), 16, "{mib} MiB: {crews}");
        }
        let one = Crews::new(&plan, machine(16, 50 << 20)).unwrap();
        assert_eq!(one.number(), 1);
        assert_eq!(before, 16);
    }

    #[test]
    fn every_crew_can_count_and_less_memory_is_refused_by_the_least_that_works() {
        for (n, layout) in [
            (12, Layout::Border),
            (13, Layout::Frames),
            (22, Layout::Frames),
        ] {
            let plan = plan(n, layout);
            let Err(SetupError::Memory { given: 1, least }) = Crews::new(&plan, machine(3, 1))
            else {
                panic!("N = {n} in one byte");
            };
            for memory_bytes in [least, 3 * least, 1 << 40] {
                let crews = Crews::new(&plan, machine(3, memory_bytes)).unwrap();
                for at in 0..crews.number() {
                    let Crew {
                        threads,
                        memory_bytes,
                    } = crews.crew(at);
                    let setup = Setup {
                        kernel: Kernel::SCALAR,
                        threads,
                        memory_bytes,
                        orientation: Orientation::Upright,
                    };
                    assert!(Counter::new(&plan, &setup).is_ok(), "N = {n}, {crews}");
                }
            }
            assert!(Crews::new(&plan, machine(3, least - 1)).is_err());
            let three = Machine {
                crews: NonZeroU16::new(9),
                ..machine(3, 1 << 40)
            };
            let three = Crews::new(&plan, three).unwrap();
            assert_eq!(three.number(), 3);
        }
    }

    #[test]
    fn crews_are_named_by_their_sizes() {
        let plan = plan(12, Layout::Frames);
        for (all, number, text) in [
            (16, 4, "4 crews of 4"),
            (2, 1, "1 crew of 2"),
            (8, 3, "2 crews of 3 and 1 of 2"),
            (7, 5, "2 crews of 2 and 3 of 1"),
        ] {
            let machine = Machine {
                crews: NonZeroU16::new(number),
                ..machine(all, 1 << 40)
            };
            assert_eq!(Crews::new(&plan, machine).unwrap().to_string(), text);
        }
    }
}
