//! What a worker is started with, validated once.

use std::{
    fmt, fs, io, net::IpAddr, num::NonZeroU16, path::PathBuf, str::FromStr, thread, time::Duration,
};

use common::{
    board::Board,
    count::SetupError,
    crews::{Crews, Machine},
    kernel::Kernel,
    method::Layout,
    plan::{Plan, PlanSpec},
    run::WorkerId,
};
use proto::door::{BadJoin, BadTlsFile, Certified, Identity, JoinString, TrustedCa, Way};
use tokio::sync::watch;
use tonic::transport::Uri;

use crate::{glance::Glance, memory::MemorySize, rules::Rules};

/// Everything that [`crate::run`] needs to know.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The coordinator to serve.
    pub coordinator: Address,
    /// How many threads count.
    pub threads: Threads,
    /// What all counting threads together may hold.
    pub memory: MemorySize,
    /// How many crews the threads make; as many as the memory holds where nobody says.
    pub crews: Option<NonZeroU16>,
    /// The instruction set of the inner loops.
    pub kernel: Kernel,
    /// For people; by default the host's name.
    pub name: Option<String>,
    /// Where results wait for their acknowledgement.
    pub spool: SpoolChoice,
    /// Who the worker is, where no spool directory remembers it; drawn anew by default.
    pub id: Option<WorkerId>,
    /// How long a planned stop may take. Tasks get all but 15 s of it to finish, and two fifths of it
    /// where that is more; the rest is for handing in their results.
    pub drain_limit: Duration,
    /// A worker that has counted ends once every run is over and it has had nothing to do for so
    /// long; `None`: it waits for ever.
    pub idle_timeout: Option<Duration>,
    /// When the machine may count.
    pub rules: Rules,
    /// Who is told now and then what the worker is doing.
    pub glances: Option<watch::Sender<Option<Glance>>>,
}

/// Too little memory to count with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} at least --memory {} with --threads {threads}, and there are {given}: give more, or fewer \
     threads",
    board.map_or_else(|| "any board needs".to_owned(), |board| format!("N = {board} needs")),
    least.as_option()
)]
pub struct TooLittleMemory {
    board: Option<Board>,
    given: MemorySize,
    threads: Threads,
    least: MemorySize,
}

impl TooLittleMemory {
    /// `given` to all `threads`, which together need `least_bytes` for this board, or for any.
    pub fn new(
        board: Option<Board>,
        given: MemorySize,
        threads: Threads,
        least_bytes: u64,
    ) -> Self {
        let least = MemorySize::at_least(least_bytes);
        Self {
            board,
            given,
            threads,
            least,
        }
    }
}

/// The crews in which `threads` count tasks of `plan` with `memory` among them: so many, or as many as
/// the memory holds.
pub fn crews(
    plan: &Plan,
    memory: MemorySize,
    threads: Threads,
    number: Option<NonZeroU16>,
) -> Result<Crews, TooLittleMemory> {
    Crews::new(plan, machine(memory, threads, number)).map_err(
        |SetupError::Memory { least, .. }| {
            TooLittleMemory::new(Some(plan.spec().board), memory, threads, least)
        },
    )
}

/// What counts, where so many threads share this memory.
pub fn machine(memory: MemorySize, threads: Threads, crews: Option<NonZeroU16>) -> Machine {
    Machine {
        threads: threads.non_zero(),
        memory_bytes: memory.bytes(),
        crews,
    }
}

/// The usual [`WorkerConfig::drain_limit`]: service managers kill after 30 seconds.
const DRAIN_LIMIT: Duration = Duration::from_secs(25);

/// Where results wait for their acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolChoice {
    /// A directory of the worker's name below `$XDG_STATE_HOME/queens-spool`, or below
    /// `queens-spool` here; the next free numbered one where another worker has it.
    Usual,
    /// This directory; a second worker on it is refused.
    Directory(PathBuf),
    /// In memory alone: for a worker that ends with its coordinator anyway.
    Memory,
}

impl WorkerConfig {
    /// A worker for `coordinator` with this machine's cores, memory and best kernel.
    pub fn new(coordinator: Address) -> Self {
        Self {
            coordinator,
            threads: Threads::of_this_machine(),
            memory: MemorySize::of_this_machine(),
            crews: None,
            kernel: Kernel::best(),
            name: None,
            spool: SpoolChoice::Usual,
            id: None,
            drain_limit: DRAIN_LIMIT,
            idle_timeout: None,
            rules: Rules::default(),
            glances: None,
        }
    }

    /// Whether there is a board that can be counted with this little memory.
    pub fn check_memory(&self) -> Result<(), TooLittleMemory> {
        // Method rows takes the same for every board, and less than frames takes for any.
        let smallest = Board::new(1).map(|board| PlanSpec::new(board, Layout::FirstRows));
        let Some(plan) = smallest.ok().and_then(|spec| Plan::new(spec).ok()) else {
            return Ok(());
        };
        match crews(&plan, self.memory, self.threads, self.crews) {
            Ok(_) => Ok(()),
            Err(error) => Err(TooLittleMemory {
                board: None,
                ..error
            }),
        }
    }

    /// What one thread may hold, in bytes.
    pub fn memory_bytes_per_thread(&self) -> u64 {
        self.memory.bytes() / u64::from(self.threads.get())
    }
}

/// Where a coordinator is and how it is reached: a URL `http://host:port`, or a join string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Way);

/// A URL that a worker cannot or will not call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// Not a URL of the form that is wanted.
    #[error("'{0}' is no coordinator's URL: give http://HOST:PORT, such as http://127.0.0.1:7171")]
    Form(String),
    /// TLS, which a URL is not enough for.
    #[error(
        "'{0}': TLS takes a join string, which says how to know the coordinator: give the line that \
         it printed at its start (QUEENS_JOIN=queens1-…, or --join @FILE) instead of --coordinator; \
         or --tls-ca, --tls-cert and --tls-key where it has --client-ca"
    )]
    Tls(String),
    /// Certificates without TLS.
    #[error("'{0}' is plain text, which shows no certificates: give https:// with --tls-ca")]
    NoTls(String),
    /// A file that cannot be used.
    #[error("{0}")]
    File(String),
    /// Plain text to another machine.
    #[error(
        "'{0}' is another machine, and anyone on the way can read and change plain text: give the \
         line that the coordinator printed at its start (QUEENS_JOIN=queens1-…, or --join @FILE), or \
         add --insecure where the coordinator has it and you trust the network"
    )]
    Plaintext(String),
}

impl Address {
    /// The address that `url` names. A host that is not this machine's loopback is refused unless
    /// `insecure`.
    pub fn new(url: &str, insecure: bool) -> Result<Self, BadAddress> {
        let (uri, tls) = read_url(url)?;
        if tls {
            return Err(BadAddress::Tls(url.to_owned()));
        }
        if !insecure && !uri.host().is_some_and(is_loopback) {
            return Err(BadAddress::Plaintext(url.to_owned()));
        }
        Ok(Self(Way::Plain(uri)))
    }

    /// The address that `url` names, by `https`, for the holder of a certificate.
    pub fn certified(url: &str, files: &TlsFiles) -> Result<Self, BadAddress> {
        let (uri, tls) = read_url(url)?;
        if !tls {
            return Err(BadAddress::NoTls(url.to_owned()));
        }
        let bad = |bad: BadTlsFile| BadAddress::File(bad.to_string());
        Ok(Self(Way::Certified(Box::new(Certified {
            uri,
            ca: TrustedCa::read(&files.ca).map_err(bad)?,
            identity: Identity::read(&files.certificate, &files.key).map_err(bad)?,
        }))))
    }

    /// Whether what is said on the way there can be read and changed by others.
    pub fn is_open_to_others(&self) -> bool {
        match &self.0 {
            Way::Plain(uri) => !uri.host().is_some_and(is_loopback),
            Way::Joined(_) | Way::Certified(_) => false,
        }
    }

    /// The coordinator of a join string.
    pub const fn joined(join: JoinString) -> Self {
        Self(Way::Joined(join))
    }

    /// How to connect.
    pub const fn way(&self) -> &Way {
        &self.0
    }
}

/// The files that the holder of a certificate names.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Whom the coordinator's certificate is by.
    pub ca: PathBuf,
    /// What the caller shows.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// All of them, or none; what is missing is for the command line to say.
    pub fn of(
        ca: Option<&PathBuf>,
        certificate: Option<&PathBuf>,
        key: Option<&PathBuf>,
    ) -> Option<Self> {
        Some(Self {
            ca: ca?.clone(),
            certificate: certificate?.clone(),
            key: key?.clone(),
        })
    }
}

/// A coordinator's URL, and whether it is one of TLS.
fn read_url(url: &str) -> Result<(Uri, bool), BadAddress> {
    let form = || BadAddress::Form(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| form())?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(form()),
    };
    let named = uri.host().is_some_and(|host| !host.is_empty());
    let port = uri.port_u16().is_some_and(|port| port != 0);
    if !named || !port || uri.path() != "/" || uri.query().is_some() {
        return Err(form());
    }
    Ok((uri, tls))
}

/// What `--join` was given that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadJoinArgument {
    /// The string itself.
    #[error(transparent)]
    Join(#[from] BadJoin),
    /// `@FILE` cannot be read.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        why: io::Error,
    },
}

/// Reads `--join STRING|@FILE`.
pub fn join_string(text: &str) -> Result<JoinString, BadJoinArgument> {
    match text.strip_prefix('@') {
        None => Ok(text.parse()?),
        Some(path) => {
            let path = PathBuf::from(path);
            match fs::read_to_string(&path) {
                Ok(text) => Ok(text.parse()?),
                Err(why) => Err(BadJoinArgument::File { path, why }),
            }
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many threads count, 1 to the most that the protocol can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(u32);

/// A number of threads that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no number of threads: give a whole number from 1 to {max}", max = proto::limits::THREADS)]
pub struct BadThreads(String);

impl Threads {
    /// As many as this process may run at once, by affinity and control group.
    pub fn of_this_machine() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self(
            u32::try_from(cores).map_or(proto::limits::THREADS, |cores| {
                cores.min(proto::limits::THREADS)
            }),
        )
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The same, as threads are counted in crews.
    pub fn non_zero(self) -> NonZeroU16 {
        let number = u16::try_from(self.0).ok().and_then(NonZeroU16::new);
        number.expect("from 1 to what the protocol can name")
    }
}

impl FromStr for Threads {
    type Err = BadThreads;

    fn from_str(text: &str) -> Result<Self, BadThreads> {
        text.parse()
            .ok()
            .filter(|threads| (1..=proto::limits::THREADS).contains(threads))
            .map(Self)
            .ok_or_else(|| BadThreads(text.to_owned()))
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// This CPU's kernels, best first, for people.
pub fn available_kernels() -> String {
    let names: Vec<_> = Kernel::available().iter().map(Kernel::to_string).collect();
    names.join(", ")
}

/// A worker's name as it is sent: control characters replaced, cut to the protocol's length.
pub(crate) fn display_name(given: Option<&str>) -> String {
    let name = given.map_or_else(host_name, str::to_owned);
    let mut name = name.trim().replace(char::is_control, " ");
    name.truncate(name.floor_char_boundary(proto::limits::NAME_BYTES));
    if name.is_empty() {
        "worker".to_owned()
    } else {
        name
    }
}

/// This machine's name, as its kernel has it; empty where that cannot be found out.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default()
}

/// Reads a time limit: a span of time, or `0` for none.
pub fn time_limit(text: &str) -> Result<TimeLimit, BadDuration> {
    match text {
        "0" | "0s" => Ok(TimeLimit(None)),
        _ => duration(text).map(|limit| TimeLimit(Some(limit))),
    }
}

/// A span of time, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Duration>);

/// Text that is no span of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no span of time: give numbers with units, such as 3h, 90m, 45s or 1h30m")]
pub struct BadDuration(String);

/// Reads spans of time such as `3h`, `90m`, `45s`, `1h30m`, `2d`.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    let bad = || BadDuration(text.to_owned());
    let mut seconds = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..end].parse().map_err(|_| bad())?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            _ => return Err(bad()),
        };
        let part = number.checked_mul(unit).ok_or_else(bad)?;
        seconds = seconds.checked_add(part).ok_or_else(bad)?;
        rest = &rest[end + 1..];
    }
    // A year is longer than any scheduler's limit; clocks cannot add much more.
    if seconds == 0 || seconds > 366 * 86_400 {
        return Err(bad());
    }
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_needs_nothing_and_other_machines_need_insecure() {
        for url in [
            "http://127.0.0.1:7171",
            "http://localhost:7171",
            "http://LOCALHOST:1",
            "http://[::1]:7171",
            "http://127.9.9.9:7171/",
        ] {
            assert!(!Address::new(url, false).unwrap().is_open_to_others());
        }
        for url in [
            "http://10.0.0.7:7171",
            "http://node7:7171",
            "http://[fe80::1]:7171",
        ] {
            let error = Address::new(url, false).unwrap_err();
            assert_eq!(error, BadAddress::Plaintext(url.to_owned()));
            assert!(error.to_string().contains("--insecure"), "{error}");
            let open = Address::new(url, true).unwrap();
            assert_eq!(open.to_string(), url);
            assert!(open.is_open_to_others());
        }
        let error = Address::new("https://127.0.0.1:7171", true).unwrap_err();
        assert!(error.to_string().contains("TLS"), "{error}");
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for url in [
            "",
            "127.0.0.1:7171",
            "localhost",
            "http://",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:99999",
            "ftp://127.0.0.1:7171",
            "http://127.0.0.1:7171/path",
            "http://127.0.0.1:7171?x=1",
            "one two",
        ] {
            let error = Address::new(url, true).unwrap_err();
            assert_eq!(error, BadAddress::Form(url.to_owned()));
        }
    }

    #[test]
    fn spans_of_time_have_units() {
        for (text, seconds) in [
            ("45s", 45),
            ("90m", 5_400),
            ("3h", 10_800),
            ("1h30m", 5_400),
            ("2d", 172_800),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in [
            "",
            "0s",
            "3",
            "h",
            "-3h",
            "1.5h",
            "3 h",
            "3w",
            "99999999999999999999s",
            "9é",
        ] {
            assert_eq!(duration(bad), Err(BadDuration(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn threads_are_within_the_protocols_bounds() {
        assert_eq!("7".parse(), Ok(Threads(7)));
        for bad in ["0", "-1", "4097", "two", ""] {
            assert_eq!(bad.parse::<Threads>(), Err(BadThreads(bad.to_owned())));
        }
        assert!(Threads::of_this_machine().get() >= 1);
    }

    #[test]
    fn names_are_one_line_of_bounded_length() {
        assert_eq!(display_name(Some(" node\n7 ")), "node 7");
        assert_eq!(display_name(Some("")), "worker");
        assert_eq!(display_name(Some(&"é".repeat(100))).len(), 128);
        assert!(!display_name(None).is_empty());
    }
}
