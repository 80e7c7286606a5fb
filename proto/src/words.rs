//! The words of enumerations in JSON and text: their names in the `.proto` files, in lower case.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::v1;

macro_rules! words {
    ($($name:ident: $prefix:literal),+ $(,)?) => {$(
        impl fmt::Display for v1::$name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&word($prefix, self.as_str_name()))
            }
        }

        impl Serialize for v1::$name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

words! {
    CheckOutcome: "CHECK_OUTCOME_",
    Kernel: "KERNEL_",
    Published: "PUBLISHED_",
    Role: "ROLE_",
    RunState: "RUN_STATE_",
    WorkerState: "WORKER_STATE_",
}

fn word(prefix: &str, name: &str) -> String {
    match name.strip_prefix(prefix).expect("the generated names have the prefix") {
        // A value that a later version added.
        "UNSPECIFIED" => "unknown".to_owned(),
        word => word.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_word() {
        fn words<E: TryFrom<i32> + fmt::Display>() -> Vec<String> {
            (0..).map_while(|number| E::try_from(number).ok()).map(|e| e.to_string()).collect()
        }
        assert_eq!(
            words::<v1::CheckOutcome>(),
            ["unknown", "passed", "not_applicable", "not_possible", "failed"]
        );
        let kernels = words::<v1::Kernel>();
        let names = common::compute::kernel::KernelName::ALL.map(|kernel| kernel.to_string());
        assert_eq!(kernels.len(), names.len() + 1);
        assert!(names.iter().all(|name| kernels.contains(name)), "{kernels:?}");
        assert_eq!(words::<v1::Published>(), ["unknown", "matches", "differs", "none"]);
        assert_eq!(words::<v1::Role>(), ["unknown", "worker", "operator", "viewer"]);
        assert_eq!(words::<v1::RunState>()[1..3], ["running", "paused"]);
        assert_eq!(words::<v1::WorkerState>()[8..], ["lost", "barred", "away"]);
    }
}
