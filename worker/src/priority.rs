//! The lowest priority that a system has: for what nobody else wants.

/// Gives this thread, and those that it starts, the processor and the disk only when nobody else wants
/// them. What the system does not allow, for people; counting goes on nevertheless.
pub fn lower() -> Vec<String> {
    STEPS
        .iter()
        .filter_map(|(what, step)| step().err().map(|why| format!("{what}: {why}")))
        .collect()
}

/// What is lowered, and how.
type Step = (&'static str, fn() -> std::io::Result<()>);

#[cfg(target_os = "linux")]
const STEPS: &[Step] = &[
    ("nice 19", nice),
    ("SCHED_IDLE", linux::sched_idle),
    ("idle class of the disk", linux::io_idle),
];

#[cfg(all(unix, not(target_os = "linux")))]
const STEPS: &[Step] = &[("nice 19", nice)];

#[cfg(windows)]
const STEPS: &[Step] = &[("idle priority class", windows::idle_class)];

#[cfg(not(any(unix, windows)))]
const STEPS: &[Step] = &[("priority", || Err(std::io::ErrorKind::Unsupported.into()))];

/// On Linux of this thread, elsewhere of the process.
#[cfg(unix)]
fn nice() -> std::io::Result<()> {
    Ok(rustix::process::setpriority_process(None, 19)?)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, mem};

    use libc::{SCHED_IDLE, SYS_ioprio_set, sched_param, sched_setscheduler, syscall};

    /// `IOPRIO_WHO_PROCESS`, which libc does not name.
    const WHO_PROCESS: libc::c_int = 1;

    /// `IOPRIO_CLASS_IDLE`, in the bits of the class.
    const CLASS_IDLE: libc::c_int = 3 << 13;

    pub(super) fn sched_idle() -> io::Result<()> {
        // SAFETY: a structure of integers, which are 0.
        let parameters: sched_param = unsafe { mem::zeroed() };
        // SAFETY: the structure outlives the call; 0 is this thread.
        done(unsafe { sched_setscheduler(0, SCHED_IDLE, &raw const parameters) }.into())
    }

    pub(super) fn io_idle() -> io::Result<()> {
        // SAFETY: three integers go in, no memory is touched; 0 is this thread.
        done(unsafe { syscall(SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) })
    }

    fn done(returned: libc::c_long) -> io::Result<()> {
        match returned {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(windows)]
mod windows {
    use std::io;

    use windows_sys::Win32::System::Threading::{
        GetCurrentProcess, IDLE_PRIORITY_CLASS, SetPriorityClass,
    };

    pub(super) fn idle_class() -> io::Result<()> {
        // SAFETY: the handle of this process is a constant, and neither call touches memory.
        match unsafe { SetPriorityClass(GetCurrentProcess(), IDLE_PRIORITY_CLASS) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{fs, thread};

    use super::*;

    #[test]
    fn a_thread_and_its_children_become_idle() {
        // On a thread of its own: what is lowered cannot be raised again.
        let told = thread::spawn(|| {
            assert_eq!(lower(), [""; 0]);
            thread::spawn(|| fs::read_to_string("/proc/thread-self/stat").unwrap())
                .join()
                .unwrap()
        });
        let told = told.join().unwrap();
        // After the name, which may hold anything: fields 3 and on.
        let fields: Vec<_> = told
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let (nice, policy) = (fields[19 - 3], fields[41 - 3]);
        assert_eq!((nice, policy), ("19", "5"), "{told}");
    }
}
