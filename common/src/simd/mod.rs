//! Vector operations of each instruction set, and dispatch between the sets.
//!
//! A [`Work`] is written for any [`Set`]. [`dispatch`] passes it the token of the set of a
//! [`Kernel`]. Tokens are created only here, where a `Kernel` proves that the CPU has the
//! instructions, in a function compiled for them; all callees are inlined into it. A set provides
//! two kinds of vectors: [`States`] for the search of method `rows`, and [`Lanes`] of bits for the
//! join.

/// Implements methods with instructions of a set, inlined into the caller.
#[cfg(not(target_arch = "wasm32"))]
macro_rules! instructions {
    ($(fn $name:ident $(<const $by:ident: i32>)? ($($parameters:tt)*) -> $result:ty $body:block)*) => {
        $(#[inline(always)]
        fn $name $(<const $by: i32>)? ($($parameters)*) -> $result {
            // SAFETY: only work on the set calls this, and its token proves the CPU's features.
            unsafe { $body }
        })*
    };
}

/// Implements methods that need no special instructions, inlined into the caller.
macro_rules! inlined {
    ($(fn $name:ident $(<const $by:ident: i32>)? ($($parameters:tt)*) -> $result:ty $body:block)*) => {
        $(#[inline(always)]
        fn $name $(<const $by: i32>)? ($($parameters)*) -> $result $body)*
    };
}

mod lanes;
mod pairs;
mod residual;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(not(target_arch = "wasm32"), test))]
mod scalar;
#[cfg(target_arch = "wasm32")]
mod simd128;

#[cfg(any(not(target_arch = "wasm32"), test))]
use self::scalar::Scalar;
use crate::compute::kernel::{Kernel, KernelName};

#[cfg(target_arch = "aarch64")]
use self::neon::Neon;
#[cfg(target_arch = "wasm32")]
use self::simd128::Simd128;
#[cfg(target_arch = "x86_64")]
use self::{avx2::Avx2, avx512::Avx512};

pub(crate) use self::{
    lanes::{CacheLine, Lanes, PartitionBlock, States},
    pairs::{PAIRS_SLACK, Pairs},
    residual::{Residual, Rotation, SharedWords, rotated},
};

/// Token of an instruction set that the CPU has.
pub(crate) trait Set: States {
    type Bits: Lanes;

    /// Runs work in a separate function; one large function takes minutes to compile.
    fn run_separately<W: Work>(self, work: W) -> W::Result;

    /// Writes `(p | q) & mask` for every disjoint p and q, and returns their number.
    ///
    /// # Safety
    /// `out` is writable for as many words as there are pairs, and [`PAIRS_SLACK`] more.
    unsafe fn fitting(self, pairs: Pairs<'_>, out: *mut u64) -> usize;
}

/// Work whose inner loops are written for any instruction set.
pub(crate) trait Work {
    type Result;

    /// Runs the work; must be `#[inline(always)]`, so that it is compiled for the set.
    fn run<S: Set>(self, set: S) -> Self::Result;
}

/// Runs work with the instructions of `kernel`.
pub(crate) fn dispatch<W: Work>(kernel: Kernel, work: W) -> W::Result {
    match kernel.name() {
        // Plain words would be half of the size of a module, and all modules have vectors.
        #[cfg(any(not(target_arch = "wasm32"), test))]
        KernelName::Scalar => work.run(Scalar),
        // SAFETY: a `Kernel` exists only after its features were detected on this CPU.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx2 => unsafe { on_avx2(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        KernelName::Avx512 => unsafe { on_avx512(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        KernelName::Neon => unsafe { on_neon(work) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "wasm32", test))]
        KernelName::Simd128 => unsafe { on_simd128(work) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "wasm32", not(test)))]
        KernelName::Scalar | KernelName::Simd128 => unsafe { on_simd128(work) },
        KernelName::OpenCl => unreachable!("{kernel} is no CPU's"),
        #[cfg(not(target_arch = "x86_64"))]
        KernelName::Avx2 | KernelName::Avx512 => unreachable!("{kernel} is never detected here"),
        #[cfg(not(target_arch = "aarch64"))]
        KernelName::Neon => unreachable!("{kernel} is never detected here"),
        #[cfg(not(target_arch = "wasm32"))]
        KernelName::Simd128 => unreachable!("{kernel} is never detected here"),
    }
}

/// Implements [`Set`] for a token, with the function in which its work is compiled.
macro_rules! set {
    ($set:ident, $bits:ty, $run:ident, $fitting:path, $token:expr $(, $features:literal)*) => {
        /// Runs work in a function that is compiled for the set.
        ///
        /// # Safety
        /// The CPU has the features.
        $(#[target_feature(enable = $features)])*
        #[inline(never)]
        unsafe fn $run<W: Work>(work: W) -> W::Result {
            work.run($token)
        }

        impl Set for $set {
            type Bits = $bits;

            fn run_separately<W: Work>(self, work: W) -> W::Result {
                // SAFETY: the token proves the features.
                unsafe { $run(work) }
            }

            #[inline(always)]
            unsafe fn fitting(self, pairs: Pairs<'_>, out: *mut u64) -> usize {
                // SAFETY: the token proves the features; the caller vouches for the room.
                unsafe { $fitting(pairs, out) }
            }
        }
    };
}

#[cfg(any(not(target_arch = "wasm32"), test))]
set!(Scalar, scalar::Words, on_scalar, pairs::fitting, Scalar);

#[cfg(target_arch = "x86_64")]
set!(
    Avx2,
    avx2::Avx2Bits,
    on_avx2,
    pairs::fitting_avx2,
    // SAFETY: the caller vouches for the features.
    unsafe { Avx2::new() },
    "avx2,bmi1,bmi2,popcnt"
);

#[cfg(target_arch = "x86_64")]
set!(
    Avx512,
    avx512::Avx512Bits,
    on_avx512,
    pairs::fitting_avx512,
    // SAFETY: the caller vouches for the features.
    unsafe { Avx512::new() },
    "avx512f,avx512bw,avx512dq,avx512vl",
    "avx2,bmi1,bmi2,popcnt"
);

#[cfg(target_arch = "aarch64")]
set!(
    Neon,
    neon::NeonBits,
    on_neon,
    pairs::fitting,
    // SAFETY: the caller vouches for the features.
    unsafe { Neon::new() },
    "neon"
);

#[cfg(target_arch = "wasm32")]
set!(
    Simd128,
    simd128::Simd128Bits,
    on_simd128,
    pairs::fitting,
    // SAFETY: the caller vouches for the features.
    unsafe { Simd128::new() },
    "simd128"
);
