//! Which role every call asks for: one table, which the tests hold against the services' own
//! descriptors.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What the holder of a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Counts: may report for itself and see nothing.
    Worker,
    /// Looks: may see every run, change none.
    Viewer,
    /// Runs the cluster: may do what a viewer may, and change runs and tokens.
    Operator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Worker, Self::Viewer, Self::Operator];

    /// As it is written on command lines and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no role: give worker, operator or viewer")]
pub struct BadRole(String);

impl FromStr for Role {
    type Err = BadRole;

    fn from_str(text: &str) -> Result<Self, BadRole> {
        let named = |role: &Self| role.as_str() == text;
        Self::ALL
            .into_iter()
            .find(named)
            .ok_or_else(|| BadRole(text.to_owned()))
    }
}

/// What a call asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Open,
    /// Any role.
    Any,
    /// This role.
    Worker,
    /// A viewer, or who may do more.
    Viewer,
    /// An operator.
    Operator,
}

impl Access {
    /// Whether a caller of this role may make the call.
    pub const fn allows(self, role: Role) -> bool {
        match self {
            Self::Open | Self::Any => true,
            Self::Worker => matches!(role, Role::Worker),
            Self::Viewer => matches!(role, Role::Viewer | Role::Operator),
            Self::Operator => matches!(role, Role::Operator),
        }
    }
}

/// Every call and what it asks for. What is not here is refused to everybody.
const TABLE: &[(&str, Access)] = &[
    ("/queens.v1.WorkQueue/Sync", Access::Worker),
    ("/queens.v1.Runs/List", Access::Viewer),
    ("/queens.v1.Runs/GetStatus", Access::Viewer),
    ("/queens.v1.Runs/WatchStatus", Access::Viewer),
    ("/queens.v1.Runs/Workers", Access::Viewer),
    ("/queens.v1.Runs/Export", Access::Viewer),
    ("/queens.v1.Runs/Dashboard", Access::Viewer),
    ("/queens.v1.Runs/Submit", Access::Operator),
    ("/queens.v1.Runs/Pause", Access::Operator),
    ("/queens.v1.Runs/Resume", Access::Operator),
    ("/queens.v1.Runs/Cancel", Access::Operator),
    ("/queens.v1.Runs/Retry", Access::Operator),
    ("/queens.v1.Runs/Recheck", Access::Operator),
    ("/queens.v1.Runs/Trust", Access::Operator),
    ("/queens.v1.Runs/Drain", Access::Operator),
    ("/queens.v1.Runs/Delete", Access::Operator),
    ("/queens.v1.Tokens/Create", Access::Operator),
    ("/queens.v1.Tokens/List", Access::Operator),
    ("/queens.v1.Tokens/Revoke", Access::Operator),
    // A probe of a load balancer has no token, and learns that the port answers.
    ("/grpc.health.v1.Health/Check", Access::Open),
    ("/grpc.health.v1.Health/Watch", Access::Open),
    (
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Access::Any,
    ),
    (
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Access::Any,
    ),
];

/// What the call of this path asks for; `None` for a path that no service has.
pub fn access(path: &str) -> Option<Access> {
    let found = TABLE.iter().find(|(known, _)| *known == path)?;
    Some(found.1)
}

/// Every address of the HTTP face, with its method, and what it asks for. What is not here is refused
/// to everybody.
const HTTP_TABLE: &[(&str, &str, Access)] = &[
    // Probes have no token, and learn that the port answers.
    ("GET", "/healthz", Access::Open),
    ("GET", "/readyz", Access::Open),
    ("GET", "/metrics", Access::Viewer),
    ("GET", "/api/v1/openapi.json", Access::Any),
    ("GET", "/api/v1/status", Access::Viewer),
    ("GET", "/api/v1/workers", Access::Viewer),
    ("GET", "/api/v1/runs", Access::Viewer),
    ("POST", "/api/v1/runs", Access::Operator),
    ("GET", "/api/v1/runs/{run}", Access::Viewer),
    ("DELETE", "/api/v1/runs/{run}", Access::Operator),
    ("POST", "/api/v1/runs/{run}/pause", Access::Operator),
    ("POST", "/api/v1/runs/{run}/resume", Access::Operator),
    ("POST", "/api/v1/runs/{run}/cancel", Access::Operator),
    ("POST", "/api/v1/runs/{run}/retry", Access::Operator),
    ("POST", "/api/v1/runs/{run}/recheck", Access::Operator),
    ("GET", "/api/v1/runs/{run}/map", Access::Viewer),
    ("GET", "/api/v1/runs/{run}/grid", Access::Viewer),
    ("GET", "/api/v1/runs/{run}/tasks/{task}", Access::Viewer),
    ("GET", "/api/v1/runs/{run}/history", Access::Viewer),
    ("POST", "/api/v1/join", Access::Operator),
    // Who sees nothing but these learns only that this is a coordinator.
    ("GET", "/login", Access::Open),
    ("POST", "/login", Access::Open),
    ("GET", "/login/{link}", Access::Open),
    ("GET", "/assets/{name}", Access::Open),
    ("POST", "/logout", Access::Any),
    ("GET", "/", Access::Viewer),
    ("GET", "/workers", Access::Viewer),
    ("GET", "/runs/{run}", Access::Viewer),
    ("GET", "/runs/{run}/events", Access::Viewer),
];

/// What a request with this method to this address, as the router writes it, asks for; `None` for one
/// that nobody answers.
pub(crate) fn http_access(method: &str, route: &str) -> Option<Access> {
    // A head is asked for as what it is the head of.
    let method = if method == "HEAD" { "GET" } else { method };
    let found = HTTP_TABLE
        .iter()
        .find(|row| (row.0, row.1) == (method, route))?;
    Some(found.2)
}

/// Every method and address of the HTTP table.
#[cfg(test)]
pub(crate) fn http_routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    HTTP_TABLE.iter().map(|row| (row.0, row.1))
}

/// The whole table: every path, and what it asks for.
pub fn calls() -> &'static [(&'static str, Access)] {
    TABLE
}
