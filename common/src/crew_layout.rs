//! Division of a machine's threads into crews.
//!
//! A crew shares the memory of one count, so few large crews need less memory than many small ones.
//! But members of a crew wait for each other, so there are as many crews as the memory allows.

use std::{fmt, num::NonZeroU16};

use crate::{
    compute::setup::SetupError,
    frames,
    plan::{Division, Plan},
    rows,
};

pub use crate::compute::setup::Needs;

/// Resources for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub threads: NonZeroU16,
    pub memory_bytes: u64,
    /// Number of crews, at most one per thread; by default as many as fit.
    pub crews: Option<NonZeroU16>,
}

/// A machine divided into crews for the tasks of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crews {
    machine: Machine,
    number: NonZeroU16,
    /// Bytes with which the largest crew counts at full speed.
    full: u64,
}

/// Threads and memory of one crew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrewResources {
    pub threads: NonZeroU16,
    pub memory_bytes: u64,
}

impl Crews {
    /// Divides `machine` for `plan`.
    ///
    /// By default there are as many crews as can hold typical lists whole, but at least one.
    ///
    /// # Errors
    /// If a crew cannot count the plan's tasks in its part of the memory.
    pub fn new(plan: &Plan, machine: Machine) -> Result<Self, SetupError> {
        let needs = PlanNeeds::new(plan);
        let divided = |number: NonZeroU16| {
            let largest = machine.threads.get().div_ceil(number.get());
            let threads = NonZeroU16::new(largest).unwrap_or(NonZeroU16::MIN);
            Self { machine, number, full: needs.of(threads).full }
        };
        let fits = |crews: &Self| {
            let crew = crews.crew(0);
            needs.of(crew.threads).whole <= crew.memory_bytes
        };
        let crews = match machine.crews {
            Some(number) => divided(number.min(machine.threads)),
            None => {
                let numbers = (1..=machine.threads.get()).rev();
                let mut layouts = numbers.filter_map(NonZeroU16::new).map(divided);
                layouts.find(fits).unwrap_or(divided(NonZeroU16::MIN))
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

    /// Returns the memory that all crews use together.
    pub fn memory_bytes(&self) -> u64 {
        self.crew(0).memory_bytes.saturating_mul(self.number.get().into())
    }

    pub fn number(&self) -> u16 {
        self.number.get()
    }

    /// Returns the resources of crew number `index`.
    ///
    /// # Panics
    /// If there is no such crew.
    pub fn crew(&self, index: u16) -> CrewResources {
        assert!(index < self.number.get(), "crew {index} of {}", self.number);
        let (total, number) = (self.machine.threads.get(), self.number.get());
        let threads = total / number + u16::from(index < total % number);
        CrewResources {
            threads: NonZeroU16::new(threads).expect("no more crews than threads"),
            memory_bytes: (self.machine.memory_bytes / u64::from(number)).min(self.full),
        }
    }
}

/// Formats the sizes: `4 crews of 4`, `2 crews of 3 and 1 of 2`.
impl fmt::Display for Crews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (threads, number) = (self.machine.threads.get(), self.number.get());
        let (small, larger) = (threads / number, threads % number);
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

/// Memory that crews need for tasks of one plan; the same for all plans of `rows`.
#[derive(Debug)]
pub struct PlanNeeds(Option<frames::FrameNeeds>);

impl PlanNeeds {
    pub fn new(plan: &Plan) -> Self {
        Self(match plan.division() {
            Division::Rows(_) => None,
            Division::Frames(division) => Some(frames::FrameNeeds::new(division)),
        })
    }

    /// Returns the memory needs of a crew of this many threads.
    pub fn of(&self, threads: NonZeroU16) -> Needs {
        match &self.0 {
            // Method `rows` uses one thread per crew, so each thread should form its own crew.
            None => {
                let bytes = rows::memory_bytes().saturating_mul(threads.get().into());
                Needs { least: bytes, whole: bytes, full: bytes }
            }
            Some(needs) => needs.of(threads.get().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        count::{Counter, CounterConfig},
        method::Layout,
        test_fixture::plan,
    };

    fn machine(threads: u16, memory_bytes: u64) -> Machine {
        Machine { threads: NonZeroU16::new(threads).unwrap(), memory_bytes, crews: None }
    }

    #[test]
    fn memory_limits_the_number_of_crews() {
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
    fn every_crew_can_count_and_less_memory_is_refused_with_the_minimum() {
        for (n, layout) in [(12, Layout::Border), (13, Layout::Frames), (22, Layout::Frames)] {
            let plan = plan(n, layout);
            let Err(SetupError::Memory { given: 1, least }) = Crews::new(&plan, machine(3, 1))
            else {
                panic!("N = {n} in one byte");
            };
            assert!(layout != Layout::Border || least < 3 << 20, "under 1 MiB per thread");
            for memory_bytes in [least, 3 * least, 1 << 40] {
                let crews = Crews::new(&plan, machine(3, memory_bytes)).unwrap();
                for at in 0..crews.number() {
                    let CrewResources { threads, memory_bytes } = crews.crew(at);
                    let config = CounterConfig { threads, ..CounterConfig::best(memory_bytes) };
                    assert!(Counter::new(&plan, &config).is_ok(), "N = {n}, {crews}");
                }
            }
            assert!(Crews::new(&plan, machine(3, least - 1)).is_err());
            let nine = Machine { crews: NonZeroU16::new(9), ..machine(3, 1 << 40) };
            assert_eq!(Crews::new(&plan, nine).unwrap().number(), 3);
        }
    }

    #[test]
    fn a_board_takes_what_it_needs_for_full_speed_and_not_all_memory() {
        let used = |n, threads| {
            let plan = plan(n, Layout::Frames);
            Crews::new(&plan, machine(threads, 1 << 40)).unwrap().memory_bytes()
        };
        assert!(used(16, 2) < 64 << 20, "{}", used(16, 2));
        assert!(used(16, 2) < used(22, 2) && used(22, 2) < 4 << 30, "{}", used(22, 2));
    }

    #[test]
    fn crews_are_named_by_their_sizes() {
        let plan = plan(12, Layout::Frames);
        for (threads, number, text) in [
            (16, 4, "4 crews of 4"),
            (2, 1, "1 crew of 2"),
            (8, 3, "2 crews of 3 and 1 of 2"),
            (7, 5, "2 crews of 2 and 3 of 1"),
        ] {
            let machine = Machine { crews: NonZeroU16::new(number), ..machine(threads, 1 << 40) };
            assert_eq!(Crews::new(&plan, machine).unwrap().to_string(), text);
        }
    }
}
