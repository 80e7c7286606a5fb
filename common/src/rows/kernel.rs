//! The one place where an instruction set is chosen.

use std::ops::ControlFlow;

#[cfg(target_arch = "aarch64")]
use super::lanes::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::lanes::{avx2::Avx2, avx512::Avx512};
use super::{
    ground::{Ground, Root},
    lanes::scalar::Scalar,
    stream::{self, Stacks},
};
use crate::kernel::{Kernel, KernelName};

/// What [`stream::count`] is told of progress with, and stopped by.
pub(super) type Tick<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// [`stream::count`] with the instructions of `kernel`.
pub(super) fn count(
    kernel: Kernel,
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut Tick<'_>,
) -> ControlFlow<(), u64> {
    match kernel.name() {
        // SAFETY: plain integers need nothing of the CPU.
        KernelName::Scalar => unsafe { stream::count(Scalar, stacks, ground, roots, tick) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Kernel` of this name exists only after the CPU's features were seen.
        KernelName::Avx2 => unsafe { avx2(stacks, ground, roots, tick) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Kernel` of this name exists only after the CPU's features were seen.
        KernelName::Avx512 => unsafe { avx512(stacks, ground, roots, tick) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a `Kernel` of this name exists only after the CPU's features were seen.
        KernelName::Neon => unsafe { neon(stacks, ground, roots, tick) },
        #[cfg(not(target_arch = "x86_64"))]
        KernelName::Avx2 | KernelName::Avx512 => unreachable!("{kernel} is never detected here"),
        #[cfg(not(target_arch = "aarch64"))]
        KernelName::Neon => unreachable!("{kernel} is never detected here"),
    }
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
unsafe fn avx2(
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut Tick<'_>,
) -> ControlFlow<(), u64> {
    // SAFETY: the caller vouches for the features.
    unsafe { stream::count(Avx2::new(), stacks, ground, roots, tick) }
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2")]
unsafe fn avx512(
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut Tick<'_>,
) -> ControlFlow<(), u64> {
    // SAFETY: the caller vouches for the features.
    unsafe { stream::count(Avx512::new(), stacks, ground, roots, tick) }
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon(
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut Tick<'_>,
) -> ControlFlow<(), u64> {
    // SAFETY: the caller vouches for the features.
    unsafe { stream::count(Neon::new(), stacks, ground, roots, tick) }
}
