//! Idle priority for CPU and I/O.

/// Sets this thread, and threads it starts later, to idle CPU and I/O priority.
///
/// Outside Linux, only lowers the process's CPU priority. Returns a message for each step that failed.
pub fn lower() -> Vec<String> {
    run_steps(STEPS)
}

/// Does what [`lower`] does, and lowers the session if this process leads it.
pub fn lower_session() -> Vec<String> {
    [lower(), run_steps(SESSION_STEPS)].concat()
}

/// The name of a step and its function.
type Step = (&'static str, fn() -> std::io::Result<()>);

fn run_steps(steps: &[Step]) -> Vec<String> {
    let failed = |(what, step): &Step| step().err().map(|why| format!("{what}: {why}"));
    steps.iter().filter_map(failed).collect()
}

#[cfg(target_os = "linux")]
const STEPS: &[Step] =
    &[("nice 19", nice), ("SCHED_IDLE", linux::sched_idle), ("idle I/O class", linux::io_idle)];

#[cfg(target_os = "linux")]
const SESSION_STEPS: &[Step] = &[("nice 19 of the session", linux::autogroup)];

#[cfg(not(target_os = "linux"))]
const SESSION_STEPS: &[Step] = &[];

#[cfg(all(unix, not(target_os = "linux")))]
const STEPS: &[Step] = &[("nice 19", nice)];

#[cfg(windows)]
const STEPS: &[Step] = &[("idle priority class", windows::idle_class)];

/// Sets nice 19 for this thread on Linux, elsewhere for the process.
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
        check(unsafe { sched_setscheduler(0, SCHED_IDLE, &raw const parameters) }.into())
    }

    pub(super) fn io_idle() -> io::Result<()> {
        // SAFETY: the call takes three integers and touches no memory; 0 is this thread.
        check(unsafe { syscall(SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) })
    }

    fn check(status: libc::c_long) -> io::Result<()> {
        match status {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sets nice 19 for the session, if this process leads it.
    ///
    /// With autogroups, Linux divides the CPU among sessions, and nice only ranks the processes of one.
    pub(super) fn autogroup() -> io::Result<()> {
        const ATTEMPTS: u32 = 10;
        // Linux allows one write per tenth of a second, for all unprivileged users together.
        const PAUSE: Duration = Duration::from_millis(100);
        let write = || File::options().write(true).open("/proc/self/autogroup")?.write_all(b"19");
        // SAFETY: both calls only read numbers. The session is 0 if its leader is outside the PID namespace.
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
