//! The role that each call requires, in two tables.
//! Tests compare the tables with the services' descriptors and the router.

use std::{fmt, str::FromStr};

use proto::v1;
use serde::{Deserialize, Serialize};

/// The rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Submits counts; sees nothing.
    Worker,
    /// Sees every run; changes nothing.
    Viewer,
    /// Sees everything; changes runs and tokens.
    Operator,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Worker, Self::Viewer, Self::Operator];

    /// Returns the name used on command lines and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

impl From<Role> for v1::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Worker => Self::Worker,
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
        }
    }
}

/// The inverse conversion; fails for a role of another version.
impl TryFrom<v1::Role> for Role {
    type Error = BadRole;

    fn try_from(role: v1::Role) -> Result<Self, BadRole> {
        role.to_string().parse()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid role '{0}': expected worker, operator or viewer")]
pub struct BadRole(String);

impl FromStr for Role {
    type Err = BadRole;

    fn from_str(text: &str) -> Result<Self, BadRole> {
        let named = |role: &Self| role.as_str() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| BadRole(text.to_owned()))
    }
}

/// The role that a call requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// None, not even authentication.
    Open,
    Any,
    Worker,
    /// Viewer or operator.
    Viewer,
    Operator,
}

impl Access {
    /// Returns whether a caller of this role may make the call.
    pub const fn allows(self, role: Role) -> bool {
        match self {
            Self::Open | Self::Any => true,
            Self::Worker => matches!(role, Role::Worker),
            Self::Viewer => matches!(role, Role::Viewer | Role::Operator),
            Self::Operator => matches!(role, Role::Operator),
        }
    }
}

/// All gRPC calls. A call without a row is refused.
pub const CALLS: &[(&str, Access)] = &[
    ("/queens.v1.WorkQueue/Sync", Access::Worker),
    ("/queens.v1.Runs/List", Access::Viewer),
    ("/queens.v1.Runs/GetStatus", Access::Viewer),
    ("/queens.v1.Runs/WatchStatus", Access::Viewer),
    ("/queens.v1.Runs/Workers", Access::Viewer),
    ("/queens.v1.Runs/Export", Access::Viewer),
    ("/queens.v1.Runs/Credits", Access::Viewer),
    ("/queens.v1.Runs/Dashboard", Access::Viewer),
    ("/queens.v1.Runs/Submit", Access::Operator),
    ("/queens.v1.Runs/Events", Access::Viewer),
    ("/queens.v1.Runs/Pause", Access::Operator),
    ("/queens.v1.Runs/Resume", Access::Operator),
    ("/queens.v1.Runs/Cancel", Access::Operator),
    ("/queens.v1.Runs/Retry", Access::Operator),
    ("/queens.v1.Runs/Set", Access::Operator),
    ("/queens.v1.Runs/Trust", Access::Operator),
    ("/queens.v1.Runs/Drain", Access::Operator),
    ("/queens.v1.Runs/Delete", Access::Operator),
    ("/queens.v1.Tokens/Create", Access::Operator),
    ("/queens.v1.Tokens/List", Access::Operator),
    ("/queens.v1.Tokens/Renew", Access::Operator),
    ("/queens.v1.Tokens/Revoke", Access::Operator),
    // Probes of load balancers have no token; they learn only that the port answers.
    ("/grpc.health.v1.Health/Check", Access::Open),
    ("/grpc.health.v1.Health/Watch", Access::Open),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Access::Any),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Access::Any),
];

/// Returns the role that a gRPC path requires; `None` for an unknown path.
pub fn access(path: &str) -> Option<Access> {
    let row = CALLS.iter().find(|(known, _)| *known == path)?;
    Some(row.1)
}

/// All HTTP routes. A route without a row is refused.
pub const HTTP_ROUTES: &[(&str, &str, Access)] = &[
    // Probes have no token; they learn only that the port answers.
    ("GET", "/healthz", Access::Open),
    ("GET", "/readyz", Access::Open),
    ("GET", "/metrics", Access::Viewer),
    ("GET", "/api/v1/openapi.json", Access::Any),
    ("GET", "/api/v1/status", Access::Viewer),
    ("GET", "/api/v1/workers", Access::Viewer),
    ("POST", "/api/v1/workers/{worker}/drain", Access::Operator),
    ("POST", "/api/v1/workers/{worker}/trust", Access::Operator),
    ("GET", "/api/v1/runs", Access::Viewer),
    ("POST", "/api/v1/runs", Access::Operator),
    ("GET", "/api/v1/runs/{run}", Access::Viewer),
    ("DELETE", "/api/v1/runs/{run}", Access::Operator),
    ("POST", "/api/v1/runs/{run}/pause", Access::Operator),
    ("POST", "/api/v1/runs/{run}/resume", Access::Operator),
    ("POST", "/api/v1/runs/{run}/cancel", Access::Operator),
    ("POST", "/api/v1/runs/{run}/retry", Access::Operator),
    ("POST", "/api/v1/runs/{run}/recheck", Access::Operator),
    ("POST", "/api/v1/runs/{run}/priority", Access::Operator),
    ("GET", "/api/v1/runs/{run}/map", Access::Viewer),
    ("GET", "/api/v1/runs/{run}/grid", Access::Viewer),
    ("GET", "/api/v1/runs/{run}/tasks/{task}", Access::Viewer),
    ("GET", "/api/v1/runs/{run}/history", Access::Viewer),
    ("GET", "/api/v1/runs/{run}/credits", Access::Viewer),
    ("GET", "/api/v1/events", Access::Viewer),
    ("GET", "/api/v1/cost", Access::Operator),
    ("POST", "/api/v1/join", Access::Operator),
    // The login page and its assets reveal only that this is a coordinator.
    ("GET", "/login", Access::Open),
    ("POST", "/login", Access::Open),
    ("GET", "/login/{link}", Access::Open),
    ("POST", "/login/{link}", Access::Open),
    ("GET", "/assets/{name}", Access::Open),
    // Visitors have no token; without --volunteers these are not found.
    ("GET", "/count", Access::Open),
    ("GET", "/count/counter.wasm", Access::Open),
    ("POST", "/count/sync", Access::Open),
    ("POST", "/logout", Access::Any),
    ("GET", "/", Access::Viewer),
    ("GET", "/workers", Access::Viewer),
    ("GET", "/runs", Access::Viewer),
    ("GET", "/events", Access::Viewer),
    ("GET", "/runs/{run}", Access::Viewer),
    ("GET", "/runs/{run}/events", Access::Viewer),
    ("GET", "/runs/{run}/credits", Access::Viewer),
    ("GET", "/runs/{run}/tasks/{task}", Access::Viewer),
    ("GET", "/runs/{run}/{file}", Access::Viewer),
];

/// Returns the role that a route of the router requires; `None` if unknown.
pub fn http_access(method: &str, route: &str) -> Option<Access> {
    // HEAD requires the same role as GET.
    let method = if method == "HEAD" { "GET" } else { method };
    let row = HTTP_ROUTES.iter().find(|row| (row.0, row.1) == (method, route))?;
    Some(row.2)
}
