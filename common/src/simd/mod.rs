//! Instruction sets, as leaves over plain vectors, and the only dispatch of the program.
//!
//! What is to be done is a [`Work`], written for any [`Set`]. [`dispatch`] hands it the token of the set
//! that a [`Kernel`] stands for. Tokens are made here and nowhere else, where a `Kernel` proves that
//! the CPU has the instructions, in a function that is compiled for them; all below is inlined into it.
//! A set brings two kinds of vectors: [`States`] for the search of method `rows`, and [`Lanes`] of bits
//! for the joins of method `frames`.

mod bits;
mod lanes;
mod pairs;
mod rest;
mod rotate;
mod states;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

#[cfg(target_arch = "aarch64")]
use self::neon::Neon;
use self::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use self::{avx2::Avx2, avx512::Avx512};
use crate::kernel::{Kernel, KernelName};

pub(crate) use self::{
    lanes::{CacheLine, Lanes, Sixteen},
    pairs::{PAIRS_SLACK, Pairs},
    rest::{Rest, SharedWords},
    rotate::{Rotation, rotated},
    states::States,
};

/// An instruction set that the CPU has: a token.
pub(crate) trait Set: States {
    /// Its vectors of bits.
    type Bits: Lanes;

    /// Does work on this set in a function of its own: in one with more work it would take the compiler
    /// minutes.
    fn apart<W: Work>(self, work: W) -> W::Result;

    /// Writes `(p | q) & mask` to `out` for every p and q of the lists that have no common bit, and returns
    /// how many these are.
    ///
    /// # Safety
    /// `out` is writable for as many words as there are pairs, and [`PAIRS_SLACK`] more.
    unsafe fn fitting(self, pairs: Pairs<'_>, out: *mut u64) -> usize;
}

/// Work whose inner loops are written for any instruction set.
pub(crate) trait Work {
    /// What comes of it.
    type Result;

    /// Does it. Implementations are `#[inline(always)]`, so that they are compiled for the set.
    fn run<S: Set>(self, set: S) -> Self::Result;
}

/// Does work with the instructions of `kernel`.
pub(crate) fn dispatch<W: Work>(kernel: Kernel, work: W) -> W::Result {
    match kernel.name() {
        KernelName::Scalar => work.run(Scalar),
        // SAFETY: a `Kernel` exists only after its features were seen on this CPU.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx2 => unsafe { on_avx2(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx512 => unsafe { on_avx512(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        KernelName::Neon => unsafe { on_neon(work) },
        #[cfg(not(target_arch = "x86_64"))]
        KernelName::Avx2 | KernelName::Avx512 => unreachable!("{kernel} is never detected here"),
        #[cfg(not(target_arch = "aarch64"))]
        KernelName::Neon => unreachable!("{kernel} is never detected here"),
    }
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline(never)]
unsafe fn on_avx2<W: Work>(work: W) -> W::Result {
    // SAFETY: the caller vouches for the features.
    work.run(unsafe { Avx2::new() })
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline(never)]
unsafe fn on_avx512<W: Work>(work: W) -> W::Result {
    // SAFETY: the caller vouches for the features.
    work.run(unsafe { Avx512::new() })
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
#[inline(never)]
unsafe fn on_neon<W: Work>(work: W) -> W::Result {
    // SAFETY: the caller vouches for the features.
    work.run(unsafe { Neon::new() })
}

/// Plain work, apart as on the other sets.
#[inline(never)]
fn on_scalar<W: Work>(work: W) -> W::Result {
    work.run(Scalar)
}

impl Set for Scalar {
    type Bits = bits::scalar::Words;

    fn apart<W: Work>(self, work: W) -> W::Result {
        on_scalar(work)
    }

    #[inline(always)]
    unsafe fn fitting(self, pairs: Pairs<'_>, out: *mut u64) -> usize {
        // SAFETY: the caller vouches for the room.
        unsafe { pairs::fitting(pairs, out) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Set for Avx2 {
    type Bits = bits::avx2::Avx2Bits;

    fn apart<W: Work>(self, work: W) -> W::Result {
        // SAFETY: the token proves the features.
        unsafe { on_avx2(work) }
    }

    #[inline(always)]
    unsafe fn fitting(self, pairs: Pairs<'_>, out: *mut u64) -> usize {
        // SAFETY: the token proves the features; the caller vouches for the room.
        unsafe { pairs::fitting_avx2(pairs, out) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Set for Avx512 {
    type Bits = bits::avx512::Avx512Bits;

    fn apart<W: Work>(self, work: W) -> W::Result {
        // SAFETY: the token proves the features.
        unsafe { on_avx512(work) }
    }

    #[inline(always)]
    unsafe fn fitting(self, pairs: Pairs<'_>, out: *mut u64) -> usize {
        // SAFETY: the token proves the features; the caller vouches for the room.
        unsafe { pairs::fitting_avx512(pairs, out) }
    }
}

#[cfg(target_arch = "aarch64")]
impl Set for Neon {
    type Bits = bits::neon::NeonBits;

    fn apart<W: Work>(self, work: W) -> W::Result {
        // SAFETY: the token proves the features.
        unsafe { on_neon(work) }
    }

    #[inline(always)]
    unsafe fn fitting(self, pairs: Pairs<'_>, out: *mut u64) -> usize {
        // SAFETY: the caller vouches for the room.
        unsafe { pairs::fitting(pairs, out) }
    }
}
