//! Which instruction set counts: detected once at start-up, overridable, proven by a type.

use std::{fmt, str::FromStr};

use crate::method::UnknownName;

/// An instruction set that the inner loops are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelName {
    /// Plain 64-bit words; runs everywhere.
    Scalar,
    /// 256-bit vectors on x86-64.
    Avx2,
    /// 512-bit vectors on x86-64 (F, BW, DQ and VL).
    Avx512,
    /// 128-bit vectors on aarch64.
    Neon,
}

/// A kernel that this CPU has: a value exists only after [`Kernel::new`] saw the CPU's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(KernelName);

/// The CPU lacks what a kernel needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this CPU lacks kernel '{name}'; it has: {available}")]
pub struct MissingKernel {
    /// The kernel asked for.
    pub name: KernelName,
    /// The kernels there are, best first.
    pub available: String,
}

impl KernelName {
    /// Every kernel there is, on any CPU, best first.
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Neon, Self::Scalar];

    /// The name used on the command line, on the wire and in the journal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    fn detected(self) -> bool {
        match self {
            Self::Scalar => true,
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
    /// The portable kernel, which every CPU has.
    pub const SCALAR: Self = Self(KernelName::Scalar);

    /// The kernel of this name, if this CPU has it.
    pub fn new(name: KernelName) -> Result<Self, MissingKernel> {
        if name.detected() {
            return Ok(Self(name));
        }
        let names: Vec<_> = Self::available()
            .iter()
            .map(|kernel| kernel.0.as_str())
            .collect();
        Err(MissingKernel {
            name,
            available: names.join(", "),
        })
    }

    /// The best kernel of this CPU.
    ///
    /// ```
    /// use common::kernel::Kernel;
    ///
    /// assert_eq!(Kernel::best(), Kernel::available()[0]);
    /// assert!(Kernel::available().contains(&Kernel::SCALAR));
    /// ```
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// Every kernel of this CPU, best first; never empty.
    pub fn available() -> Vec<Self> {
        KernelName::ALL
            .into_iter()
            .filter(|name| name.detected())
            .map(Self)
            .collect()
    }

    /// The instruction set.
    pub const fn name(self) -> KernelName {
        self.0
    }
}

impl fmt::Display for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for KernelName {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| UnknownName {
                what: "kernel",
                given: text.to_owned(),
                expected: "scalar, avx2, avx512, neon",
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_portable_kernel_is_always_there_and_last() {
        assert_eq!(Kernel::available().last(), Some(&Kernel::SCALAR));
    }

    #[test]
    fn a_missing_kernel_names_what_there_is() {
        let missing = KernelName::ALL
            .into_iter()
            .find(|name| !name.detected())
            .unwrap();
        let error = Kernel::new(missing).unwrap_err().to_string();
        assert!(
            error.contains(missing.as_str()) && error.contains("scalar"),
            "{error}"
        );
    }
}
