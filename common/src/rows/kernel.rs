//! The one place where an instruction set is chosen.

use std::ops::ControlFlow;

#[cfg(target_arch = "x86_64")]
use super::lanes::avx512::Avx512;
use super::{
    ground::{Ground, Root},
    lanes::scalar::Scalar,
    stream::{self, Stacks},
};
use crate::kernel::{Kernel, KernelName};

/// [`stream::count`] with the instructions of `kernel`.
pub(super) fn count(
    kernel: Kernel,
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> ControlFlow<(), u64> {
    match kernel.name() {
        // SAFETY: plain integers need nothing of the CPU.
        KernelName::Scalar => unsafe { stream::count(Scalar, stacks, ground, roots, tick) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Kernel` of this name exists only after the CPU's features were seen.
        KernelName::Avx512 => unsafe { avx512(stacks, ground, roots, tick) },
        // SAFETY: plain integers need nothing of the CPU.
        KernelName::Avx2 | KernelName::Neon => unsafe {
            stream::count(Scalar, stacks, ground, roots, tick)
        },
    }
}

/// # Safety
/// The CPU has the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2")]
unsafe fn avx512(
    stacks: &mut Stacks,
    ground: &Ground,
    roots: &[Root],
    tick: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> ControlFlow<(), u64> {
    // SAFETY: the caller vouches for the features.
    unsafe { stream::count(Avx512::new(), stacks, ground, roots, tick) }
}
