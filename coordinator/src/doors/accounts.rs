//! What callers use: how many connections, calls and bytes, and for whom.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tonic::Status;

use super::{Limits, Principal};

/// Principals whose accounts are kept after their connections have gone.
const MOST_KEPT: usize = 20_000;

/// The accounts of one door.
pub(crate) struct Accounts {
    limits: Limits,
    by_principal: Mutex<HashMap<Principal, Arc<Account>>>,
    bytes: Arc<AtomicUsize>,
}

struct Account {
    calls: DefaultDirectRateLimiter,
    connections: AtomicUsize,
}

impl Accounts {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            by_principal: Mutex::default(),
            bytes: Arc::default(),
        })
    }

    /// Counts a call that was let in; it is under way until what is returned is dropped. Where
    /// nobody is asked who they are, nobody can be told from the others.
    pub(crate) fn enter(
        &self,
        principal: &Principal,
        visit: Option<&Arc<Visit>>,
    ) -> Result<Call, Status> {
        if let Some(name) = principal.name() {
            let account = self.account(principal);
            if account.calls.check().is_err() {
                return Err(Status::resource_exhausted(format!(
                    "'{name}' makes more than {} calls a second: call less often, or give every \
                     laboratory a token of its own",
                    self.limits.calls_a_second
                )));
            }
            if let Some(visit) = visit
                && !visit.belongs_to(principal, &account, self.limits.connections_per_principal)
            {
                return Err(Status::resource_exhausted(format!(
                    "'{name}' has {} connections open already: close some, or give every \
                     laboratory a token of its own",
                    self.limits.connections_per_principal
                )));
            }
        }
        if let Some(visit) = visit {
            visit.begins(*principal != Principal::Anybody || !visit.guarded);
        }
        Ok(Call {
            visit: visit.cloned(),
            all: self.bytes.clone(),
            held: AtomicUsize::new(0),
            most: (self.limits.call_bytes, self.limits.all_bytes),
        })
    }

    fn account(&self, principal: &Principal) -> Arc<Account> {
        let mut accounts = self
            .by_principal
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= MOST_KEPT && !accounts.contains_key(principal) {
            accounts.retain(|_, account| account.connections.load(Relaxed) > 0);
        }
        let new = || {
            Arc::new(Account {
                calls: RateLimiter::direct(Quota::per_second(self.limits.calls_a_second)),
                connections: AtomicUsize::new(0),
            })
        };
        accounts
            .entry(principal.clone())
            .or_insert_with(new)
            .clone()
    }
}

/// One call under way, and the bytes that it has sent.
pub(crate) struct Call {
    visit: Option<Arc<Visit>>,
    all: Arc<AtomicUsize>,
    held: AtomicUsize,
    /// Of one call, and of all.
    most: (usize, usize),
}

impl Call {
    /// Counts bytes that came in.
    pub(super) fn takes(&self, bytes: usize) -> Result<(), Status> {
        if self.held.load(Relaxed).saturating_add(bytes) > self.most.0 {
            return Err(Status::resource_exhausted(format!(
                "a call sends at most {} bytes",
                self.most.0
            )));
        }
        if self.all.fetch_add(bytes, Relaxed).saturating_add(bytes) > self.most.1 {
            self.all.fetch_sub(bytes, Relaxed);
            return Err(Status::resource_exhausted(
                "too much is being sent to the coordinator just now: send it again later",
            ));
        }
        self.held.fetch_add(bytes, Relaxed);
        Ok(())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.all.fetch_sub(*self.held.get_mut(), Relaxed);
        if let Some(visit) = &self.visit {
            visit.ends();
        }
    }
}

/// What happens on one connection.
pub struct Visit {
    /// Whether callers are asked who they are.
    guarded: bool,
    /// Calls in a row that were not let in.
    refused: AtomicU32,
    state: Mutex<State>,
}

struct State {
    since: Instant,
    /// Whether a call was let in since then.
    admitted: bool,
    under_way: usize,
    principals: Vec<(Principal, Arc<Account>)>,
}

impl std::fmt::Debug for Visit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visit")
    }
}

impl Visit {
    pub(super) fn new(guarded: bool) -> Arc<Self> {
        Arc::new(Self {
            guarded,
            refused: AtomicU32::new(0),
            state: Mutex::new(State {
                since: Instant::now(),
                admitted: false,
                under_way: 0,
                principals: Vec::new(),
            }),
        })
    }

    /// How long the connection may stay as it is; nothing once it has to end.
    pub(super) fn may_stay(&self, limits: &Limits) -> Option<Duration> {
        let state = self.state();
        let limit = match state.admitted {
            true if state.under_way > 0 => return Some(limits.idle),
            true => limits.idle,
            false => limits.unadmitted,
        };
        let left = limit.checked_sub(state.since.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// A call was not let in.
    pub(crate) fn refuses(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Whether too many calls in a row were not let in.
    pub(super) fn is_sent_away(&self, limits: &Limits) -> bool {
        self.refused.load(Relaxed) >= limits.refusals
    }

    fn begins(&self, admitted: bool) {
        let mut state = self.state();
        state.under_way += 1;
        if admitted {
            state.admitted = true;
            self.refused.store(0, Relaxed);
        }
    }

    fn ends(&self) {
        let mut state = self.state();
        state.under_way -= 1;
        if state.admitted {
            state.since = Instant::now();
        }
    }

    /// Whether the connection is among those of the principal, which may have so many.
    fn belongs_to(&self, principal: &Principal, account: &Arc<Account>, most: usize) -> bool {
        let mut state = self.state();
        if state.principals.iter().any(|(known, _)| known == principal) {
            return true;
        }
        if account.connections.fetch_add(1, Relaxed) >= most {
            account.connections.fetch_sub(1, Relaxed);
            return false;
        }
        state.principals.push((principal.clone(), account.clone()));
        true
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        for (_, account) in &self.state().principals {
            account.connections.fetch_sub(1, Relaxed);
        }
    }
}
