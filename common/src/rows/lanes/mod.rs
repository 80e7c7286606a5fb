//! The instruction sets, one leaf each.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod scalar;
