//! How the threads of a machine are divided into crews.
//!
//! A crew shares the memory of one count (`count::Setup`), so that few crews of many threads need
//! less memory than many of few. But the members of a crew wait for each other now and then: so there
//! are as many crews as the memory holds.

use std::{fmt, num::NonZeroU16};

use crate::{
    count::SetupError,
    frames,
    plan::{Division, Plan},
    rows,
};

/// Threads and memory, divided for the tasks of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crews {
    threads: NonZeroU16,
    memory_bytes: u64,
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
    /// As many crews as `memory_bytes` hold without cutting the lists of typical tasks of `plan` into
    /// pieces; one of all threads where it holds not even that.
    ///
    /// # Errors
    /// If one crew of all threads cannot count the plan's tasks in so much memory.
    pub fn new(plan: &Plan, threads: NonZeroU16, memory_bytes: u64) -> Result<Self, SetupError> {
        let fits = |crews: &Self| {
            let crew = crews.crew(0);
            memory(plan, crew.threads).whole <= crew.memory_bytes
        };
        let divided = (1..=threads.get()).rev().filter_map(NonZeroU16::new);
        let mut divided = divided.map(|number| Self {
            threads,
            memory_bytes,
            number,
        });
        match divided.find(fits) {
            Some(crews) => Ok(crews),
            None => Self::of_number(NonZeroU16::MIN, plan, threads, memory_bytes),
        }
    }

    /// So many crews, or as many as there are threads.
    ///
    /// # Errors
    /// If one of them cannot count the plan's tasks in its part of the memory.
    pub fn of_number(
        number: NonZeroU16,
        plan: &Plan,
        threads: NonZeroU16,
        memory_bytes: u64,
    ) -> Result<Self, SetupError> {
        let number = number.min(threads);
        let crews = Self {
            threads,
            memory_bytes,
            number,
        };
        let Crew {
            threads,
            memory_bytes: given,
        } = crews.crew(0);
        let least = memory(plan, threads).least;
        if given < least {
            return Err(SetupError::Memory { given, least });
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
        let (all, number) = (self.threads.get(), self.number.get());
        let threads = all / number + u16::from(index < all % number);
        Crew {
            threads: NonZeroU16::new(threads).expect("no more crews than threads"),
            memory_bytes: self.memory_bytes / u64::from(number),
        }
    }
}

/// `4 crews of 4`, `2 crews of 3 and 1 of 2`.
impl fmt::Display for Crews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, number) = (self.threads.get(), self.number.get());
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

/// What a crew needs for the tasks of a plan, in bytes.
pub(crate) struct Needs {
    /// The smallest budget that works.
    pub(crate) least: u64,
    /// With this much, the lists of typical tasks need not be cut into pieces.
    pub(crate) whole: u64,
}

fn memory(plan: &Plan, threads: NonZeroU16) -> Needs {
    match plan.division() {
        Division::Rows(_) => Needs {
            least: rows::memory_bytes(),
            whole: rows::memory_bytes(),
        },
        Division::Frames(division) => frames::needs(division, threads),
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

    fn threads(number: u16) -> NonZeroU16 {
        NonZeroU16::new(number).unwrap()
    }

    #[test]
    fn memory_decides_how_many_crews_there_are() {
        let plan = plan(22, Layout::Frames);
        let mut before = 0;
        for mib in [50, 400, 1_000, 2_000, 100_000] {
            let crews = Crews::new(&plan, threads(16), mib << 20).unwrap();
            assert!(crews.number() >= before, "{mib} MiB: {crews}");
            before = crews.number();
            let members = (0..before).map(|at| crews.crew(at).threads.get());
            assert_eq!(members.sum::<u16>(), 16, "{mib} MiB: {crews}");
        }
        assert_eq!(
            Crews::new(&plan, threads(16), 50 << 20).unwrap().number(),
            1
        );
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
            let Err(SetupError::Memory { given: 1, least }) = Crews::new(&plan, threads(3), 1)
            else {
                panic!("N = {n} in one byte");
            };
            for memory_bytes in [least, 3 * least, 1 << 40] {
                let crews = Crews::new(&plan, threads(3), memory_bytes).unwrap();
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
            assert!(Crews::new(&plan, threads(3), least - 1).is_err());
            let three = Crews::of_number(threads(9), &plan, threads(3), 1 << 40).unwrap();
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
            let crews = Crews::of_number(threads(number), &plan, threads(all), 1 << 40);
            assert_eq!(crews.unwrap().to_string(), text);
        }
    }
}
