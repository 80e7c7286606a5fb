//! Asking for a run over HTTP: the words of `queensctl submit`, and what becomes of them over gRPC.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::StatusCode,
};
use common::{
    board::Board,
    choice::{MethodChoice, choose},
    plan::PlanSpec,
};
use proto::v1;
use serde::Deserialize;
use serde_json::Value;

use super::{api::summary, error::Refusal, server::App};
use crate::grpc::submitted;

/// What is asked for; all but the board has a usual value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitBody {
    n: u8,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    prefix: Option<String>,
    #[serde(default)]
    task_cost: Option<u64>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    recheck: Option<String>,
    #[serde(default)]
    again: bool,
    #[serde(default)]
    key: Option<String>,
}

impl SubmitBody {
    /// The same wish as a message of gRPC, whose checks are those of both.
    pub(super) fn message(self) -> Result<v1::SubmitRequest, Refusal> {
        let board = Board::new(self.n).map_err(|bad| wrong("n", &bad.to_string()))?;
        let method: MethodChoice = read("method", self.method.as_deref().unwrap_or("auto"))?;
        let prefix = self.prefix.as_deref();
        let prefix = prefix.map(|text| read("prefix", text)).transpose()?;
        let choice =
            choose(board, method, prefix, None).map_err(|bad| wrong("method", &bad.to_string()))?;
        let usual = PlanSpec::new(board, choice.layout);
        let spec = PlanSpec {
            task_cost: self.task_cost.unwrap_or(usual.task_cost),
            ..usual
        };
        if spec.task_cost == 0 {
            return Err(wrong("task_cost", "give microseconds, 1 at least"));
        }
        Ok(v1::SubmitRequest {
            spec: Some(spec.into()),
            priority: self.priority,
            again: self.again,
            recheck: self.recheck.unwrap_or_default(),
            idempotency_key: self.key.unwrap_or_default(),
        })
    }
}

fn read<T: std::str::FromStr<Err: std::fmt::Display>>(
    field: &str,
    text: &str,
) -> Result<T, Refusal> {
    text.parse()
        .map_err(|bad: T::Err| wrong(field, &bad.to_string()))
}

fn wrong(field: &str, what: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("{field}: {what}"))
}

/// Starts a run, or finds the one that a request with the same key has started.
pub(super) async fn submit(
    State(app): State<App>,
    request: Result<Json<SubmitBody>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(request) = request.map_err(|bad| Refusal::new(bad.status(), bad.body_text()))?;
    let run = submitted(&app.driver, app.clock, request.message()?).await?;
    Ok(Json(summary(&run)))
}
