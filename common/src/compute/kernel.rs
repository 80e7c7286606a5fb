//! Instruction sets, detected at run time. A [`Kernel`] is one that this CPU has.

use std::fmt;

/// What the inner loops run on: an instruction set of the CPU, or a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelName {
    /// Plain 64-bit words; runs everywhere.
    #[default]
    Scalar,
    /// 256-bit vectors on x86-64.
    Avx2,
    /// 512-bit vectors on x86-64 (F, BW, DQ and VL).
    Avx512,
    /// 128-bit vectors on aarch64.
    Neon,
    /// 128-bit vectors of WebAssembly.
    Simd128,
    /// A device beside the CPU; never a [`Kernel`].
    OpenCl,
}

/// A kernel that this CPU supports, as [`Kernel::new`] checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(KernelName);

/// A kernel whose features this CPU lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this CPU lacks kernel '{name}'; it has: {available}")]
pub struct MissingKernel {
    pub name: KernelName,
    /// Available kernels, best first.
    pub available: String,
}

impl KernelName {
    /// All kernels, best first.
    pub const ALL: [Self; 6] =
        [Self::OpenCl, Self::Avx512, Self::Avx2, Self::Neon, Self::Simd128, Self::Scalar];

    /// Returns the code in stored and signed bytes.
    pub const fn code(self) -> u8 {
        match self {
            Self::Scalar => 0,
            Self::Avx2 => 1,
            Self::Avx512 => 2,
            Self::Neon => 3,
            Self::OpenCl => 4,
            Self::Simd128 => 5,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.code() == code)
    }

    fn detected(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::OpenCl => false,
            // A module with these instructions loads only where they exist.
            Self::Simd128 => cfg!(target_arch = "wasm32"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.detected()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "x86_64")]
            Self::Neon => false,
            #[cfg(target_arch = "aarch64")]
            Self::Avx2 | Self::Avx512 => false,
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            Self::Avx2 | Self::Avx512 | Self::Neon => false,
        }
    }
}

impl Kernel {
    /// The portable kernel; every CPU has it.
    pub const SCALAR: Self = Self(KernelName::Scalar);

    /// Returns the kernel of this name, if this CPU has it.
    pub fn new(name: KernelName) -> Result<Self, MissingKernel> {
        if name.detected() {
            return Ok(Self(name));
        }
        let names: Vec<_> = Self::available().iter().map(|kernel| kernel.0.as_str()).collect();
        Err(MissingKernel { name, available: names.join(", ") })
    }

    pub fn best() -> Self {
        Self::available()[0]
    }

    /// Returns all kernels of this CPU, best first; never empty.
    pub fn available() -> Vec<Self> {
        KernelName::ALL.into_iter().filter(|name| name.detected()).map(Self).collect()
    }

    pub const fn name(self) -> KernelName {
        self.0
    }
}

crate::named!(
    KernelName,
    "kernel",
    as_str,
    Scalar = "scalar",
    Avx2 = "avx2",
    Avx512 = "avx512",
    Neon = "neon",
    Simd128 = "simd128",
    OpenCl = "opencl",
);

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_portable_kernel_is_available_and_a_missing_one_is_an_error_that_lists_others() {
        assert_eq!(Kernel::available().last(), Some(&Kernel::SCALAR));
        let missing = KernelName::ALL.into_iter().find(|name| !name.detected()).unwrap();
        let error = Kernel::new(missing).unwrap_err().to_string();
        assert!(error.contains(missing.as_str()) && error.contains("scalar"), "{error}");
    }
}
