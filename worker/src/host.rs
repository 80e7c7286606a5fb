//! Which machine this is: a second count is worth most from another one.

use std::fs;

/// A number that all workers on this machine share and those on others do not; 0 where nothing
/// tells machines apart.
///
/// On Linux it is made from the name that the kernel drew when it started: the same in every
/// container, and another on every node of a cluster whose nodes share one disk image. Elsewhere
/// from the name of the host.
pub(crate) fn number() -> u64 {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map_or(0, |name| hash(name.trim()))
}

/// FNV-1a, since the number must be the same for every build of this program.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_number_and_others_have_others() {
        assert_eq!(number(), number());
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(hash("node-1"), hash("node-2"));
    }
}
