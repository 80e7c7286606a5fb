//! Idle priority for CPU and I/O.

/// Sets this thread, and threads that it starts later, to idle CPU and I/O priority; returns messages
/// for steps that failed.
pub fn lower() -> Vec<String> {
    failed(STEPS)
}

/// Lowers this thread as [`lower`] does, and the session if this process leads one.
pub fn lower_session() -> Vec<String> {
    [lower(), failed(SESSION_STEPS)].concat()
}

/// The name of a step and its function.
type Step = (&'static str, fn() -> std::io::Result<()>);

fn failed(steps: &[Step]) -> Vec<String> {
    let failed = |(what, step): &Step| step().err().map(|why| format!("{what}: {why}"));
    steps.iter().filter_map(failed).collect()
}

#[cfg(target_os = "linux")]
const STEPS: &[Step] = &[
    ("nice 19", nice),
    ("SCHED_IDLE", linux::sched_idle),
    ("idle class of the disk", linux::io_idle),
];

#[cfg(target_os = "linux")]
const SESSION_STEPS: &[Step] = &[("nice 19 of the session", linux::autogroup)];

#[cfg(not(target_os = "linux"))]
const SESSION_STEPS: &[Step] = &[];

#[cfg(all(unix, not(target_os = "linux")))]
const STEPS: &[Step] = &[("nice 19", nice)];

#[cfg(windows)]
const STEPS: &[Step] = &[("idle priority class", windows::idle_class)];

/// Applies to this thread on Linux, elsewhere to the process.
#[cfg(unix)]
fn nice() -> std::io::Result<()> {
    Ok(rustix::process::setpriority_process(None, 19)?)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{fs::File, io, io::Write as _, mem, thread, time::Duration};

    use libc::{SCHED_IDLE, SYS_ioprio_set, sched_param, sched_setscheduler, syscall};

    /// `IOPRIO_WHO_PROCESS`, which libc does not name.
    const WHO_PROCESS: libc::c_int = 1;

    /// `IOPRIO_CLASS_IDLE`, shifted to the bits of the class.
    const CLASS_IDLE: libc::c_int = 3 << 13;

    pub(super) fn sched_idle() -> io::Result<()> {
        // SAFETY: the structure has only integers, for which zero is valid.
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

    /// Lowers the session that this process leads: with autogroups, Linux first divides the CPU among
    /// sessions, so the priority of a process only ranks it within its own.
    pub(super) fn autogroup() -> io::Result<()> {
        const ATTEMPTS: u32 = 10;
        // Linux lets all ordinary users together write once per tenth of a second.
        const PAUSE: Duration = Duration::from_millis(100);
        let write = || File::options().write(true).open("/proc/self/autogroup")?.write_all(b"19");
        // SAFETY: both only read numbers. The session is 0 if its leader is outside of the PID namespace.
        if unsafe { libc::getsid(0) != libc::getpid() } {
            return Ok(());
        }
        for _ in 1..ATTEMPTS {
            match write() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                written => return written,
            }
        }
        write()
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
        // On a separate thread, because a lowered priority cannot be raised again.
        let stat = thread::spawn(|| {
            assert_eq!(lower(), [""; 0]);
            thread::spawn(|| fs::read_to_string("/proc/thread-self/stat").unwrap()).join().unwrap()
        });
        let stat = stat.join().unwrap();
        // Fields 3 and later follow the name, which may contain spaces and parentheses.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let (nice, policy) = (fields[19 - 3], fields[41 - 3]);
        assert_eq!((nice, policy), ("19", "5"), "{stat}");
    }
}
