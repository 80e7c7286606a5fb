//! Self-test of a device: every kernel on small boards and frames, against the scalar kernel of the CPU.

use std::{
    hash::{BuildHasher, RandomState},
    num::NonZeroU16,
    ops::{Range, RangeInclusive},
    sync::{
        Arc,
        mpsc::{
            self,
            RecvTimeoutError::{Disconnected, Timeout},
        },
    },
    thread,
    time::Duration,
};

use common::{
    board::Board,
    compute::kernel::Kernel,
    count::{Counter, CounterConfig, NoProgress, Orientation},
    method::Layout,
    plan::{Plan, PlanSpec},
};

use crate::{
    Device, Tuning,
    opencl::{DeviceError, Result},
};

/// Boards of which all units are counted.
const BOARDS: RangeInclusive<u8> = 8..=11;

/// Boards of which a random unit is counted.
const SAMPLED: [u8; 2] = [16, 18];

/// N and a unit with long lists.
const LONG: (u8, u64) = (20, 40_000);

/// Runs `work` on a thread of its own, which is left behind if it does not end in time: some drivers of CPU devices
/// never end a compilation.
pub(crate) fn within_limit<T: Send + 'static>(
    limit: Duration,
    what: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, result) = mpsc::channel();
    let unfit = |why: String| DeviceError::Unfit(format!("{what} {why}"));
    let start = thread::Builder::new().name("device".to_owned());
    start
        .spawn(move || sender.send(work()))
        .map_err(|error| unfit(format!("has no thread: {error}")))?;
    result.recv_timeout(limit).unwrap_or_else(|error| {
        Err(match error {
            Timeout => unfit(format!("did not end within {} s", limit.as_secs())),
            Disconnected => unfit("panicked".to_owned()),
        })
    })
}

pub(crate) fn run(device: &Device) -> Result<()> {
    // The device joins all lists, however short; also with tables in every leaf, and sorted lists.
    let all = Tuning { min_pairs: 0, ..device.tuning.clone() };
    let tables = Tuning { build_cycles: 0, sort_from: 0, ..all.clone() };
    let devices = [device.tuned(all), device.tuned(tables)];
    for orientation in Orientation::ALL {
        for n in BOARDS {
            compare(&devices, n, Units::All, orientation)?;
        }
        for device in devices.chunks(1) {
            SAMPLED.into_iter().try_for_each(|n| compare(device, n, Units::Random, orientation))?;
            compare(device, LONG.0, Units::One(LONG.1), orientation)?;
        }
    }
    Ok(())
}

enum Units {
    All,
    Random,
    One(u64),
}

/// Compares the count of each unit by devices with that by the scalar kernel.
fn compare(devices: &[Arc<Device>], n: u8, units: Units, orientation: Orientation) -> Result<()> {
    let unfit = |error: &dyn std::fmt::Display| DeviceError::Unfit(error.to_string());
    let board = Board::new(n).map_err(|error| unfit(&error))?;
    let plan = Plan::new(PlanSpec::new(board, Layout::Frames)).map_err(|error| unfit(&error))?;
    let units = match units {
        Units::All => 0..plan.units(),
        // Every hash of the standard library has another seed.
        Units::Random => one(RandomState::new().hash_one(n) % plan.units()),
        Units::One(unit) => one(unit),
    };
    let config = CounterConfig {
        kernel: Kernel::SCALAR,
        threads: NonZeroU16::MIN,
        orientation,
        ..CounterConfig::best(1 << 30)
    };
    let counter = || Counter::new(&plan, &config).map_err(|error| unfit(&error));
    let mut scalar = counter()?;
    let on = |device: &Arc<Device>| Ok(counter()?.with_accelerator(device.accelerator()?));
    let mut counters = devices.iter().map(on).collect::<Result<Vec<_>>>()?;
    // The devices take turns.
    for (unit, at) in units.zip((0..devices.len()).cycle()) {
        let known = scalar.count(one(unit), &NoProgress).map_err(|error| unfit(&error))?;
        let counted = counters[at].count(one(unit), &NoProgress);
        let failure = |error| devices[at].failure().cloned().unwrap_or(unfit(&error));
        let found = counted.map_err(failure)?;
        if found != known {
            return Err(DeviceError::Wrong(format!(
                "{found} instead of {known} in unit {unit} of N = {n}, {orientation:?}"
            )));
        }
    }
    Ok(())
}

fn one(unit: u64) -> Range<u64> {
    unit..unit + 1
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use common::test_fixture::{plan, published, random_from};

    use super::*;

    /// Opens the first device, or says that nothing is tested.
    fn open(memory_bytes: Option<u64>, tuning: Tuning) -> Option<Arc<Device>> {
        if crate::devices().is_empty() {
            let loud = "!! NOT TESTED: the kernels of OpenCL (apt-get install pocl-opencl-icd)";
            // The output of `eprintln!` is shown only if the test fails.
            let _ = writeln!(std::io::stderr(), "{loud}");
            return None;
        }
        // A busy machine takes minutes.
        let tuning = Tuning { limit: Duration::from_secs(3_600), ..tuning };
        Some(Device::open(0, memory_bytes, tuning).unwrap())
    }

    #[test]
    fn a_device_passes_and_a_faulty_one_does_not() {
        let Some(device) = open(None, Tuning::default()) else { return };
        assert_eq!(device.self_test(), Ok(()));
        // The planted leaf of a launch reveals it.
        let faulty = Tuning { options: "-DWEIGHT_OF_FOURS=5", ..Tuning::default() };
        let found = open(None, faulty).unwrap().self_test();
        assert!(matches!(found, Err(DeviceError::Wrong(_))), "{found:?}");
    }

    #[test]
    fn a_whole_board_is_exact() {
        let all = Tuning { min_pairs: 0, ..Tuning::default() };
        let Some(device) = open(None, all) else { return };
        let plan = plan(10, Layout::Frames);
        let config = CounterConfig { threads: NonZeroU16::MIN, ..CounterConfig::best(1 << 30) };
        let counter = Counter::new(&plan, &config).unwrap();
        let mut counter = counter.with_accelerator(device.accelerator().unwrap());
        let counted = counter.count(0..plan.units(), &NoProgress).unwrap();
        assert_eq!(u128::from(counted), published(10));
    }

    #[test]
    fn long_lists_come_in_pieces() {
        let tables = Tuning { min_pairs: 0, build_cycles: 0, sort_from: 0, ..Tuning::default() };
        // Room for 2,048 keys.
        let Some(device) = open(Some(48 << 11), tables) else { return };
        let mut random_below = random_from(18);
        for n in [17, 18] {
            let unit = random_below(plan(n, Layout::Frames).units());
            for orientation in Orientation::ALL {
                let counted =
                    compare(std::slice::from_ref(&device), n, Units::One(unit), orientation);
                assert_eq!(counted, Ok(()));
            }
        }
    }
}
