//! Limits on connections, calls and bytes, and their use by each subject.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, RandomState},
    net::IpAddr,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use common::messages::run::WorkerId;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use tonic::Status;

use crate::{Subject, accept::network};

/// Limits of one port; `docs/capacity.md` lists the main defaults.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in total, if there are enough file descriptors.
    pub connections: usize,
    /// Connections per token or certificate.
    /// Lower than the total, so that operators can connect while workers leak connections.
    pub connections_per_subject: usize,
    pub handshake: Duration,
    /// Lifetime of a connection without an admitted call.
    pub unadmitted: Duration,
    /// Lifetime of a connection after its last call.
    pub idle: Duration,
    /// Time for the request of a call to arrive.
    pub request: Duration,
    /// Number of consecutive refused calls after which the connection is closed.
    pub refusals: u32,
    pub calls_per_connection: u32,
    /// Calls in progress per token or certificate.
    pub calls_per_subject: usize,
    /// Calls per second per token or certificate; also the largest burst.
    pub calls_per_second: NonZeroU32,
    /// Total size of the headers of a call.
    pub header_bytes: u32,
    /// Total size of the messages that a client sends in one call.
    /// The limit of each is [`common::messages::limits::MESSAGE_BYTES`].
    pub call_bytes: usize,
    /// Bytes sent by all calls in progress; those of one token or certificate may send half of it.
    pub all_bytes: usize,
    pub stream_window_bytes: u32,
    pub connection_window_bytes: u32,
    /// The interval between pings to a silent client.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_subject: 12_288,
            handshake: Duration::from_secs(10),
            unadmitted: Duration::from_secs(30),
            idle: Duration::from_secs(15 * 60),
            request: Duration::from_secs(60),
            refusals: 256,
            calls_per_connection: 64,
            calls_per_subject: 16_384,
            calls_per_second: NonZeroU32::new(10_000).expect("not zero"),
            header_bytes: 8 << 10,
            call_bytes: 8 << 20,
            all_bytes: 256 << 20,
            stream_window_bytes: 128 << 10,
            connection_window_bytes: 256 << 10,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// Returns a server builder with these limits.
    pub fn server(&self) -> tonic::transport::Server {
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(self.ping_interval))
            .http2_keepalive_timeout(Some(self.ping_timeout))
            .http2_max_header_list_size(self.header_bytes)
            .max_concurrent_streams(self.calls_per_connection)
            .initial_stream_window_size(self.stream_window_bytes)
            .initial_connection_window_size(self.connection_window_bytes)
    }
}

/// Bytes of a call without a token: a health check names a service.
const ANONYMOUS_BYTES: usize = 256;

/// Size of the usage table at which subjects without connections are removed.
const MAX_IDLE_SUBJECTS: usize = 20_000;

/// Usage of one port by all subjects.
pub struct UsageTable {
    limits: Limits,
    by_subject: Mutex<HashMap<Subject, Arc<Usage>>>,
    /// Bytes that clients have sent in all calls in progress.
    bytes: AtomicUsize,
}

struct Usage {
    calls: DefaultDirectRateLimiter,
    connections: AtomicUsize,
    in_progress: AtomicUsize,
    /// Bytes that the subject has sent in its calls in progress.
    bytes: AtomicUsize,
}

impl UsageTable {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, by_subject: Mutex::default(), bytes: AtomicUsize::new(0) })
    }

    /// Starts an admitted call, in progress until the returned value is dropped.
    /// Anonymous callers cannot be distinguished, so no quotas per subject apply to them.
    pub fn start_call(
        self: &Arc<Self>,
        subject: &Subject,
        activity: Option<&Arc<ConnectionActivity>>,
    ) -> Result<Call, Status> {
        let bytes = AtomicUsize::new(0);
        let mut call =
            Call { table: self.clone(), of_subject: None, activity: None, max_bytes: 0, bytes };
        if let Some(name) = subject.name() {
            let usage = call.of_subject.insert(self.usage(subject));
            let too_many = |what: String| {
                let advice = "or create a token for each laboratory";
                Status::resource_exhausted(format!("'{name}' {what}, {advice}"))
            };
            let Limits { calls_per_subject, calls_per_second, connections_per_subject, .. } =
                self.limits;
            if usage.in_progress.fetch_add(1, Relaxed) >= calls_per_subject {
                return Err(too_many(format!(
                    "has {calls_per_subject} calls in progress: end some"
                )));
            }
            if usage.calls.check().is_err() {
                let what =
                    format!("makes more than {calls_per_second} calls per second: call less often");
                return Err(too_many(what));
            }
            if let Some(activity) = activity
                && !activity.join(subject, usage, connections_per_subject)
            {
                let what = format!("has {connections_per_subject} connections open: close some");
                return Err(too_many(what));
            }
        }
        let admitted = *subject != Subject::Anonymous
            || activity.is_none_or(|activity| !activity.authenticates);
        if let Some(activity) = activity {
            activity.begin(admitted);
            call.activity = Some(activity.clone());
        }
        call.max_bytes = if admitted { self.limits.call_bytes } else { ANONYMOUS_BYTES };
        Ok(call)
    }

    fn usage(&self, subject: &Subject) -> Arc<Usage> {
        let mut table = self.by_subject.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= MAX_IDLE_SUBJECTS && !table.contains_key(subject) {
            table.retain(|_, usage| usage.connections.load(Relaxed) > 0);
        }
        let new = || {
            Arc::new(Usage {
                calls: RateLimiter::direct(Quota::per_second(self.limits.calls_per_second)),
                connections: AtomicUsize::new(0),
                in_progress: AtomicUsize::new(0),
                bytes: AtomicUsize::new(0),
            })
        };
        table.entry(subject.clone()).or_insert_with(new).clone()
    }
}

/// Identities that an address, or a /64 of IPv6, gets per day; also the largest burst.
const IDENTITIES_PER_DAY: NonZeroU32 = NonZeroU32::new(64).expect("not zero");

/// Calls of an identity per minute; also the largest burst.
const VISITOR_CALLS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(240).expect("not zero");

/// Number of quotas of each kind. Callers are divided among them by a keyed hash, so their memory is bounded and nobody
/// can choose whose quota to exhaust.
const VISITOR_QUOTAS: u64 = 1 << 17;

/// Quotas of visitors without a token.
pub struct VisitorQuotas {
    hash: RandomState,
    identities: DefaultKeyedRateLimiter<u64>,
    calls: DefaultKeyedRateLimiter<u64>,
}

impl Default for VisitorQuotas {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        let identity = Quota::with_period(day / IDENTITIES_PER_DAY.get()).expect("not zero");
        Self {
            hash: RandomState::new(),
            identities: RateLimiter::keyed(identity.allow_burst(IDENTITIES_PER_DAY)),
            calls: RateLimiter::keyed(Quota::per_minute(VISITOR_CALLS_PER_MINUTE)),
        }
    }
}

impl VisitorQuotas {
    /// Counts an identity that is issued to a visitor at this address.
    pub fn issue(&self, address: IpAddr) -> Result<(), Status> {
        let what = format!("{IDENTITIES_PER_DAY} visitors a day: try again tomorrow");
        self.within(&self.identities, network(address), || format!("this address has {what}"))
    }

    /// Counts a call of a visitor.
    pub fn call(&self, visitor: WorkerId) -> Result<(), Status> {
        let what =
            || format!("at most {VISITOR_CALLS_PER_MINUTE} calls per minute: call less often");
        self.within(&self.calls, visitor, what)
    }

    fn within(
        &self,
        limiter: &DefaultKeyedRateLimiter<u64>,
        caller: impl Hash,
        refusal: impl Fn() -> String,
    ) -> Result<(), Status> {
        let quota = self.hash.hash_one(caller) % VISITOR_QUOTAS;
        limiter.check_key(&quota).map_err(|_| Status::resource_exhausted(refusal()))
    }
}

/// A call in progress and the bytes that its client has sent.
pub struct Call {
    table: Arc<UsageTable>,
    /// `None` for an anonymous caller.
    of_subject: Option<Arc<Usage>>,
    activity: Option<Arc<ConnectionActivity>>,
    max_bytes: usize,
    bytes: AtomicUsize,
}

impl Call {
    pub(crate) fn limits(&self) -> &Limits {
        &self.table.limits
    }

    /// Adds received bytes to the quotas, unless they exceed a limit.
    pub(crate) fn receive(&self, bytes: usize) -> Result<(), Status> {
        if self.bytes.load(Relaxed).saturating_add(bytes) > self.max_bytes {
            let text = format!("call too large: at most {} bytes per call", self.max_bytes);
            return Err(Status::resource_exhausted(text));
        }
        // They are subtracted when the call ends, also if it is refused here.
        self.bytes.fetch_add(bytes, Relaxed);
        let all = self.limits().all_bytes;
        let exceeds =
            |total: &AtomicUsize, max| total.fetch_add(bytes, Relaxed).saturating_add(bytes) > max;
        let by_subject =
            self.of_subject.as_ref().is_some_and(|usage| exceeds(&usage.bytes, all / 2));
        if exceeds(&self.table.bytes, all) || by_subject {
            return Err(Status::resource_exhausted(
                "the coordinator is receiving too much data: send it again later",
            ));
        }
        Ok(())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        if let Some(usage) = &self.of_subject {
            usage.in_progress.fetch_sub(1, Relaxed);
        }
        for total in self.of_subject.iter().map(|usage| &usage.bytes).chain([&self.table.bytes]) {
            total.fetch_sub(bytes, Relaxed);
        }
        if let Some(activity) = &self.activity {
            activity.end();
        }
    }
}

pub struct ConnectionActivity {
    /// Whether callers have to authenticate.
    authenticates: bool,
    /// Consecutive refused calls.
    refused: AtomicU32,
    state: Mutex<State>,
}

struct State {
    since: Instant,
    /// Whether a call was ever admitted on the connection.
    admitted: bool,
    calls: usize,
    subjects: Vec<(Subject, Arc<Usage>)>,
}

impl ConnectionActivity {
    pub(crate) fn new(authenticates: bool) -> Arc<Self> {
        let state =
            State { since: Instant::now(), admitted: false, calls: 0, subjects: Vec::new() };
        Arc::new(Self { authenticates, refused: AtomicU32::new(0), state: Mutex::new(state) })
    }

    /// Returns how long the connection may stay idle; `None` once it has to end.
    pub(crate) fn remaining_idle_time(&self, limits: &Limits) -> Option<Duration> {
        let state = self.state();
        let limit = match state.admitted {
            true if state.calls > 0 => return Some(limits.idle),
            true => limits.idle,
            false => limits.unadmitted,
        };
        let remaining = limit.checked_sub(state.since.elapsed())?;
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Returns whether a call was ever admitted on the connection.
    pub(crate) fn is_admitted(&self) -> bool {
        self.state().admitted
    }

    pub fn record_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Returns whether too many consecutive calls were refused.
    pub(crate) fn has_too_many_refusals(&self, limits: &Limits) -> bool {
        self.refused.load(Relaxed) >= limits.refusals
    }

    fn begin(&self, admitted: bool) {
        let mut state = self.state();
        state.calls += 1;
        if admitted {
            state.admitted = true;
            self.refused.store(0, Relaxed);
        }
    }

    fn end(&self) {
        let mut state = self.state();
        state.calls -= 1;
        if state.admitted {
            state.since = Instant::now();
        }
    }

    /// Counts the connection for the subject; false if `max` others are open.
    fn join(&self, subject: &Subject, usage: &Arc<Usage>, max: usize) -> bool {
        let mut state = self.state();
        if state.subjects.iter().any(|(known, _)| known == subject) {
            return true;
        }
        if usage.connections.fetch_add(1, Relaxed) >= max {
            usage.connections.fetch_sub(1, Relaxed);
            return false;
        }
        state.subjects.push((subject.clone(), usage.clone()));
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionActivity {
    fn drop(&mut self) {
        for (_, usage) in &self.state().subjects {
            usage.connections.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_quotas_of_any_number_of_visitors_take_bounded_memory() {
        let quotas = VisitorQuotas::default();
        for number in 0..400_000u32 {
            // An address may share its quota with others.
            let _ = quotas.issue(Ipv4Addr::from_bits(number).into());
            let _ = quotas.call(WorkerId(number.into()));
        }
        let most = usize::try_from(VISITOR_QUOTAS).unwrap();
        assert!(quotas.identities.len() <= most && quotas.calls.len() <= most);
    }
}
