//! The join on OpenCL devices: GPUs, and CPU devices such as pocl for tests.
//!
//! The loader (`libOpenCL`) is opened at run time. Without one there are no devices.
//!
//! The host makes quarter boards. A device makes half boards of them, sorts these into the cells of a grid, and joins
//! leaf by leaf, as `common::join` does: `kernels/grid.cl` and `kernels/leaf.cl`.

mod join;
mod kernels;
mod layout;
mod opencl;
mod self_test;

use std::{
    fmt,
    ops::RangeInclusive,
    sync::{Arc, OnceLock},
    time::Duration,
};

use common::join::Accelerator;

pub use opencl::{Description, DeviceError};

use join::DeviceJoin;
use kernels::TABLES_BYTES;
use opencl::{Program, Queue};

/// Choices that tests vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Minimum pairs of two lists that the device joins; the CPU joins the others.
    pub min_pairs: usize,
    /// Clock cycles to make the tables of 1,024 keys; 0: tables for every leaf.
    pub build_cycles: u32,
    /// Minimum length of the shorter list for sorting the longer one.
    pub sort_from: u32,
    /// Options for the compiler, in addition.
    pub options: &'static str,
    /// Limit of a compilation and of a self-test.
    pub limit: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        let limit = Duration::from_secs(60);
        Self { min_pairs: 1 << 32, build_cycles: 500, sort_from: 320, options: "", limit }
    }
}

/// Returns the descriptions of all devices; an index into them selects a device.
pub fn devices() -> Vec<Result<Description, DeviceError>> {
    opencl::ids().into_iter().map(|id| opencl::describe(id?)).collect()
}

/// A device with compiled kernels, for any number of joins.
#[derive(Debug)]
pub struct Device {
    index: usize,
    description: Description,
    memory_bytes: u64,
    program: Arc<Program>,
    tuning: Tuning,
    /// Why a join failed; no further one is started.
    failure: OnceLock<DeviceError>,
}

/// Joins that share a device, so that the host makes quarter boards of frames while the device joins another one: as
/// many as have 4 GiB each.
const JOINS: RangeInclusive<usize> = 2..=4;

/// Registers of a thread on NVIDIA: with fewer, the compiler spills some of them.
const REGISTERS: u32 = 128;

impl Device {
    /// Opens a device, and compiles the kernels for it.
    ///
    /// Its joins use up to `memory_bytes` together, by default 80 % of its memory. They are only known to be exact after
    /// [`Self::self_test`].
    ///
    /// # Errors
    /// If there is no such device, or its driver fails or does not end.
    pub fn open(
        index: usize,
        memory_bytes: Option<u64>,
        tuning: Tuning,
    ) -> Result<Arc<Self>, DeviceError> {
        let limit = tuning.limit;
        let compile = move || Self::compile(index, memory_bytes, tuning);
        Ok(Arc::new(self_test::within_limit(limit, "the compilation", compile)?))
    }

    /// Compares counts of the device with those of the CPU.
    ///
    /// # Errors
    /// If they differ, or the test does not end.
    pub fn self_test(self: &Arc<Self>) -> Result<(), DeviceError> {
        let device = self.clone();
        self_test::within_limit(self.tuning.limit, "the self-test", move || self_test::run(&device))
    }

    fn compile(
        index: usize,
        memory_bytes: Option<u64>,
        tuning: Tuning,
    ) -> Result<Self, DeviceError> {
        let ids = opencl::ids();
        let number = ids.len();
        let missing = || DeviceError::Unfit(format!("there is no such one: there are {number}"));
        let id = ids.into_iter().nth(index).ok_or_else(missing)??;
        let description = opencl::describe(id)?;
        let mut options = format!("-cl-std=CL1.2 {}", tuning.options);
        if description.is_cpu {
            // pocl copies the code after a barrier for each path to it, and does not finish with optimized loops.
            options.push_str(" -cl-opt-disable");
        }
        if description.vendor.starts_with("NVIDIA") {
            // The limit has no effect on kernels that name the size of their groups.
            options.push_str(&format!(" -DNVIDIA -cl-nv-maxrregcount={REGISTERS}"));
        }
        let program = Program::new(id, &options)?;
        let memory_bytes = memory_bytes.unwrap_or(description.memory_bytes / 5 * 4);
        let (program, failure) = (Arc::new(program), OnceLock::new());
        Ok(Self { index, description, memory_bytes, program, tuning, failure })
    }

    /// Returns the device with another tuning, except for [`Tuning::options`], and no failure.
    fn tuned(&self, tuning: Tuning) -> Arc<Self> {
        let (description, program) = (self.description.clone(), self.program.clone());
        Arc::new(Self { description, program, tuning, failure: OnceLock::new(), ..*self })
    }

    /// Returns the name that its driver gives it.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Returns why the device is not used any more.
    pub fn failure(&self) -> Option<&DeviceError> {
        self.failure.get()
    }

    /// Starts no further join on the device.
    pub fn fail(&self, why: DeviceError) {
        // The first failure is kept.
        let _ = self.failure.set(why);
    }

    /// Returns whether a group has the memory for tables.
    fn has_tables(&self) -> bool {
        TABLES_BYTES <= self.description.local_bytes
    }

    /// Returns the number of joins that keep the device busy.
    pub fn joins(&self) -> usize {
        let joins = usize::try_from(self.memory_bytes >> 32).unwrap_or(usize::MAX);
        joins.clamp(*JOINS.start(), *JOINS.end())
    }

    /// Creates one of the [`Self::joins`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn accelerator(self: &Arc<Self>) -> Result<Accelerator, DeviceError> {
        let join = DeviceJoin::new(self.clone())?;
        Ok(Accelerator {
            join: Box::new(join),
            most_keys: self.most_keys(),
            min_pairs: self.tuning.min_pairs as u64,
            held_keys: self.tuning.min_pairs.min(1 << 16),
        })
    }

    fn queue(&self) -> Result<Queue, DeviceError> {
        self.program.queue(usize::try_from(self.memory_of_join()).unwrap_or(usize::MAX))
    }

    fn memory_of_join(&self) -> u64 {
        self.memory_bytes / self.joins() as u64
    }

    fn most_keys(&self) -> usize {
        let bytes = self.memory_of_join();
        // Two grids and their work list, for 24 cell bits; then keys and lists gathered.
        let keys = bytes.saturating_sub(1 << 30).max(bytes / 4) / 6;
        let one_buffer = self.description.buffer_bytes / 4 * 2;
        usize::try_from(keys.min(one_buffer)).unwrap_or(usize::MAX).min(1 << 31)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ({})", self.index, self.description.name)
    }
}
