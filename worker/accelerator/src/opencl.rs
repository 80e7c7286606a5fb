//! OpenCL calls: handles that release themselves, buffers, and launches.

use std::{
    ffi::CString,
    fmt, ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cl3::{
    command_queue::{
        self, enqueue_fill_buffer, enqueue_nd_range_kernel, enqueue_read_buffer,
        enqueue_write_buffer,
    },
    context, device,
    error_codes::{CL_PLATFORM_NOT_FOUND_KHR, DLOPEN_RUNTIME_LOAD_FAILED, error_text},
    kernel, memory, platform, program,
    types::{cl_device_id, cl_event, cl_int},
};

use crate::kernels::{Code, SOURCES};

/// An error of a driver, or a device that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("{call}: {} ({code})", error_text(*.code))]
    Call { call: &'static str, code: cl_int },
    /// The first error of the compiler.
    #[error("the kernels do not compile: {0}")]
    Compile(String),
    #[error("{0}")]
    Unfit(String),
    /// A launch did not find the planted pairs, or did not end as it should.
    #[error("wrong result: {0}")]
    Wrong(String),
    /// The caller stopped the join, and the device is fine.
    #[error("cancelled")]
    Cancelled,
}

pub(crate) type Result<T> = std::result::Result<T, DeviceError>;

/// Names the call that an error comes from.
fn call<T>(call: &'static str, result: std::result::Result<T, cl_int>) -> Result<T> {
    result.map_err(|code| DeviceError::Call { call, code })
}

type Raw = *mut std::ffi::c_void;

/// Work waits for what was enqueued before it, so for no events.
const NO_EVENTS: *const cl_event = ptr::null();

/// A handle of the driver, released when dropped.
///
/// Errors of the release are ignored: they cannot be acted upon.
#[derive(Debug)]
struct Handle {
    raw: Raw,
    release: unsafe fn(Raw) -> std::result::Result<(), cl_int>,
}

// SAFETY: OpenCL handles may be used by any thread; only kernels not by several at once, and each queue has its own.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: `release` belongs to the type of the handle, which is released once.
        let _ = unsafe { (self.release)(self.raw) };
    }
}

/// Properties of a device, as its driver states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub driver: String,
    pub memory_bytes: u64,
    pub is_cpu: bool,
    pub(crate) vendor: String,
    pub(crate) units: u32,
    pub(crate) local_bytes: u64,
    pub(crate) buffer_bytes: u64,
}

impl fmt::Display for Description {
    /// Formats name, memory and driver.
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        write!(f, "{}, {gib:.1} GiB, driver {}", self.name, self.driver)
    }
}

/// A device, by its id in the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id(isize);

impl Id {
    fn raw(self) -> cl_device_id {
        self.0 as cl_device_id
    }
}

/// Returns the devices of all drivers, in the order of the drivers, with an error for a driver that lists none because
/// it fails; none without a loader.
pub(crate) fn ids() -> Vec<Result<Id>> {
    if cfg!(all(target_os = "linux", target_feature = "crt-static")) {
        let why = "a static program cannot load drivers: use worker-gpu of the release";
        return vec![Err(DeviceError::Unfit(why.to_owned()))];
    }
    // A loader that is opening its drivers shows none to other threads.
    static LOADER: Mutex<()> = Mutex::new(());
    let _loader = lock(&LOADER);
    let platforms = match platform::get_platform_ids() {
        Ok(platforms) => platforms,
        Err(DLOPEN_RUNTIME_LOAD_FAILED | CL_PLATFORM_NOT_FOUND_KHR) => Vec::new(),
        Err(code) => return vec![Err(DeviceError::Call { call: "clGetPlatformIDs", code })],
    };
    let mut ids = Vec::new();
    for platform in platforms {
        let devices = device::get_device_ids(platform, device::CL_DEVICE_TYPE_ALL);
        match call("clGetDeviceIDs", devices) {
            Ok(devices) => ids.extend(devices.into_iter().map(|id| Ok(Id(id as isize)))),
            Err(error) => ids.push(Err(error)),
        }
    }
    ids
}

pub(crate) fn describe(id: Id) -> Result<Description> {
    let info = |what| call("clGetDeviceInfo", device::get_device_info(id.raw(), what));
    let text = |what| Ok(String::from(info(what)?).trim_matches(['\0', ' ']).to_owned());
    let kind = u64::from(info(device::CL_DEVICE_TYPE)?);
    Ok(Description {
        name: text(device::CL_DEVICE_NAME)?,
        driver: text(device::CL_DRIVER_VERSION)?,
        memory_bytes: info(device::CL_DEVICE_GLOBAL_MEM_SIZE)?.into(),
        vendor: text(device::CL_DEVICE_VENDOR)?,
        is_cpu: kind & device::CL_DEVICE_TYPE_CPU != 0,
        units: info(device::CL_DEVICE_MAX_COMPUTE_UNITS)?.into(),
        local_bytes: info(device::CL_DEVICE_LOCAL_MEM_SIZE)?.into(),
        buffer_bytes: info(device::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?.into(),
    })
}

/// A device with compiled kernels.
#[derive(Debug)]
pub(crate) struct Program {
    id: Id,
    program: Handle,
    context: Handle,
}

impl Program {
    pub(crate) fn new(id: Id, options: &str) -> Result<Self> {
        let context = context::create_context(&[id.raw()], ptr::null(), None, ptr::null_mut());
        let context =
            Handle { raw: call("clCreateContext", context)?, release: context::release_context };
        let program = program::create_program_with_source(context.raw, &[&SOURCES.concat()]);
        let program = Handle {
            raw: call("clCreateProgramWithSource", program)?,
            release: program::release_program,
        };
        let text = CString::new(options).expect("options without zeros");
        let built = program::build_program(program.raw, &[id.raw()], &text, None, ptr::null_mut());
        if let Err(code) = built {
            let what = program::CL_PROGRAM_BUILD_LOG;
            let log = program::get_program_build_info(program.raw, id.raw(), what);
            let log = log.map_or_else(|_| error_text(code).to_owned(), String::from);
            let is_error = |line: &&str| line.contains("error");
            let line = log.lines().find(is_error).or(log.lines().next()).unwrap_or_default();
            return Err(DeviceError::Compile(line.to_owned()));
        }
        Ok(Self { id, program, context })
    }

    fn kernel(&self, name: &str) -> Result<Handle> {
        let name = CString::new(name).expect("names without zeros");
        let kernel = kernel::create_kernel(self.program.raw, &name);
        Ok(Handle { raw: call("clCreateKernel", kernel)?, release: kernel::release_kernel })
    }

    pub(crate) fn queue(self: &Arc<Self>, limit: usize) -> Result<Queue> {
        // SAFETY: the device belongs to the context.
        let queue =
            unsafe { command_queue::create_command_queue(self.context.raw, self.id.raw(), 0) };
        let release = command_queue::release_command_queue;
        let queue = Handle { raw: call("clCreateCommandQueue", queue)?, release };
        let kernels =
            Code::ALL.iter().map(|code| self.kernel(code.name())).collect::<Result<_>>()?;
        Ok(Queue { program: self.clone(), kernels, queue, freed: Arc::default(), limit })
    }
}

#[derive(Debug)]
struct Block {
    handle: Handle,
    bytes: usize,
}

/// Blocks of a queue that were freed, for its next memory.
#[derive(Debug, Default)]
struct Freed {
    blocks: Vec<Block>,
    /// Bytes of all blocks of the queue, freed or not.
    allocated: usize,
}

/// Memory of a queue, for words of any type; reused once it is dropped, which is safe as work is done in order.
#[derive(Debug)]
pub(crate) struct Memory {
    /// `None` only while it is dropped.
    block: Option<Block>,
    freed: Arc<Mutex<Freed>>,
}

impl Memory {
    fn block(&self) -> &Block {
        self.block.as_ref().expect("not dropped")
    }

    fn raw(&self) -> Raw {
        self.block().handle.raw
    }

    fn bytes(&self) -> usize {
        self.block().bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        lock(&self.freed).blocks.extend(self.block.take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Memory(&'a Memory),
    Word(u32),
}

/// Types without padding whose every pattern of bits is valid.
pub(crate) trait Plain: Copy {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for i64 {}
impl Plain for [u32; 4] {}

/// Work of one device, in order.
#[derive(Debug)]
pub(crate) struct Queue {
    program: Arc<Program>,
    kernels: Vec<Handle>,
    queue: Handle,
    freed: Arc<Mutex<Freed>>,
    /// Bytes of memory above which freed blocks are released.
    limit: usize,
}

impl Queue {
    /// Allocates memory of about this size, or takes some that was freed.
    ///
    /// Releases what was freed if the queue would have more than its limit.
    pub(crate) fn memory(&self, bytes: usize) -> Result<Memory> {
        // Eight sizes per power of two, so that freed blocks fit.
        let step = (bytes.max(1 << 10).next_power_of_two() / 16).max(1);
        let bytes = bytes.max(16).next_multiple_of(step);
        let mut freed = lock(&self.freed);
        let fits = |block: &Block| (bytes..=bytes + bytes / 4).contains(&block.bytes);
        let block = match freed.blocks.iter().position(fits) {
            Some(at) => freed.blocks.swap_remove(at),
            None => {
                while freed.allocated + bytes > self.limit
                    && let Some(block) = freed.blocks.pop()
                {
                    freed.allocated -= block.bytes;
                }
                freed.allocated += bytes;
                self.allocate(bytes)?
            }
        };
        Ok(Memory { block: Some(block), freed: self.freed.clone() })
    }

    fn allocate(&self, bytes: usize) -> Result<Block> {
        let (context, flags) = (self.program.context.raw, memory::CL_MEM_READ_WRITE);
        // SAFETY: no memory of the host is used.
        let created = unsafe { memory::create_buffer(context, flags, bytes, ptr::null_mut()) };
        let raw = call("clCreateBuffer", created)?;
        Ok(Block { handle: Handle { raw, release: memory::release_mem_object }, bytes })
    }

    /// Copies `words` to word number `at`, and waits.
    pub(crate) fn write<T: Plain>(&self, memory: &Memory, at: usize, words: &[T]) -> Result<()> {
        let (at, bytes) = (at * size_of::<T>(), size_of_val(words));
        assert!(at + bytes <= memory.bytes(), "written past the end");
        if bytes == 0 {
            return Ok(());
        }
        let (queue, to, from) = (self.queue.raw, memory.raw(), words.as_ptr().cast());
        // SAFETY: the range is inside the buffer, and the call blocks until the words are copied.
        let written = unsafe { enqueue_write_buffer(queue, to, 1, at, bytes, from, 0, NO_EVENTS) };
        self.enqueued("clEnqueueWriteBuffer", written)
    }

    /// Copies words from number `at` on, after all work so far.
    pub(crate) fn read<T: Plain + Default, const N: usize>(
        &self,
        memory: &Memory,
        at: usize,
    ) -> Result<[T; N]> {
        let mut words = [T::default(); N];
        self.read_to(memory, at, &mut words)?;
        Ok(words)
    }

    pub(crate) fn read_to<T: Plain>(
        &self,
        memory: &Memory,
        at: usize,
        words: &mut [T],
    ) -> Result<()> {
        let (at, bytes) = (at * size_of::<T>(), size_of_val(words));
        assert!(at + bytes <= memory.bytes(), "read past the end");
        let (queue, from, to) = (self.queue.raw, memory.raw(), words.as_mut_ptr().cast());
        // SAFETY: the range is inside the buffer, any bytes are valid words, and the call blocks until they are copied.
        let read = unsafe { enqueue_read_buffer(queue, from, 1, at, bytes, to, 0, NO_EVENTS) };
        self.enqueued("clEnqueueReadBuffer", read)
    }

    /// Sets all words to zero.
    pub(crate) fn clear(&self, memory: &Memory) -> Result<()> {
        let (queue, raw, bytes) = (self.queue.raw, memory.raw(), memory.bytes() / 4 * 4);
        let (zero, pattern) = (0_u32, size_of::<u32>());
        let zero = (&raw const zero).cast();
        // SAFETY: the range is inside the buffer; the pattern is copied by the call.
        let filled =
            unsafe { enqueue_fill_buffer(queue, raw, zero, pattern, 0, bytes, 0, NO_EVENTS) };
        self.enqueued("clEnqueueFillBuffer", filled)
    }

    /// Starts a kernel in `groups` groups.
    pub(crate) fn launch(
        &self,
        code: Code,
        groups: usize,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        if groups == 0 {
            return Ok(());
        }
        let kernel = self.kernels[code as usize].raw;
        let mut at = 0;
        let mut set = |bytes, value: *const std::ffi::c_void| {
            // SAFETY: the value has this size, and is copied by the call.
            let set = unsafe { kernel::set_kernel_arg(kernel, at, bytes, value) };
            at += 1;
            call("clSetKernelArg", set)
        };
        for argument in arguments {
            match argument {
                Argument::Memory(memory) => {
                    let raw = memory.raw();
                    set(size_of::<Raw>(), (&raw const raw).cast())?;
                }
                Argument::Word(word) => set(4, ptr::from_ref(word).cast())?,
            }
        }
        let (queue, all, one) = (self.queue.raw, groups * code.threads(), code.threads());
        let (all, one) = (&raw const all, &raw const one);
        // SAFETY: all arguments are set, with buffers that live until the work is waited for.
        let launched = unsafe {
            enqueue_nd_range_kernel(queue, kernel, 1, ptr::null(), all, one, 0, NO_EVENTS)
        };
        self.enqueued(code.name(), launched)
    }

    fn enqueued(&self, name: &'static str, event: std::result::Result<Raw, cl_int>) -> Result<()> {
        let event = call(name, event)?;
        // SAFETY: the event was just returned, and is not used again.
        let _ = unsafe { cl3::event::release_event(event) };
        Ok(())
    }
}
