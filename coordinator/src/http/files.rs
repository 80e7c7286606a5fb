//! Files of a run: its certificate with the counts, and a picture for link previews.

use axum::{
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use common::messages::run::RunId;
use serde::Deserialize;
use store::certify::{Certified, CertifyError, certify};
use tokio::task::spawn_blocking;
use view::grouped;

use super::{
    App, api,
    guard::{Query, Refusal},
    preview,
};

/// A query for the counts of a certificate.
#[derive(Debug, Deserialize)]
pub(super) struct CountsQuery {
    /// The contributor whose counts a personal certificate has; those of all if absent.
    contributor: Option<String>,
}

/// Answers with a file of a run.
pub(super) async fn file(
    State(app): State<App>,
    Path((name, file)): Path<(String, String)>,
    Query(CountsQuery { contributor }): Query<CountsQuery>,
) -> Result<Response, Refusal> {
    let run = api::find(&app, &name).await?;
    let (kind, bytes) = match file.as_str() {
        "preview.png" => ("image/png", picture(&app, run).await?),
        "certificate.json" => {
            ("application/json", certificate(&app, run, None).await?.text.into_bytes())
        }
        "certificate.json.counts" => {
            ("application/octet-stream", certificate(&app, run, contributor).await?.counts)
        }
        _ => return Err(Refusal::not_found(format!("run {run} has no file {file}"))),
    };
    Ok(([(header::CONTENT_TYPE, kind)], bytes).into_response())
}

/// Certifies a run. Takes time in proportion to its journal.
async fn certificate(
    app: &App,
    run: RunId,
    contributor: Option<String>,
) -> Result<Certified, Refusal> {
    let Some(directory) = app.storage.directory.clone() else {
        let what =
            "a certificate is made of a data directory: copy the database first (queensctl copy)";
        return Err(Refusal::new(StatusCode::CONFLICT, what));
    };
    let working = app.working.clone().lock_owned().await;
    let made = spawn_blocking(move || {
        let _working = working;
        certify(&directory, run, contributor.as_deref())
    });
    let made = made.await.map_err(|error| Refusal::internal(error.to_string()))?;
    made.map_err(|error| match error {
        CertifyError::Partial { .. } => Refusal::new(StatusCode::CONFLICT, error.to_string()),
        CertifyError::NoCounts { .. } => Refusal::not_found(error.to_string()),
        CertifyError::Verify(flaws) => {
            tracing::error!("cannot certify run {run}: {flaws}");
            Refusal::internal(format!("cannot certify run {run}: see the log, or queensctl verify"))
        }
    })
}

/// Draws a solution of a run, its board, and its number of solutions once that is known.
async fn picture(app: &App, run: RunId) -> Result<Vec<u8>, Refusal> {
    let status = api::status_of(app, run).await?;
    let board = app.broadcast.board(run).await?;
    let n = status.run.as_ref().and_then(|run| run.spec).unwrap_or_default().n;
    let result = status.result.as_ref().filter(|result| result.disputed_tasks.is_empty());
    let number = result.map(|result| grouped(&result.solutions)).unwrap_or_default();
    let queens = board.map_or_else(Vec::new, |board| board.queens.clone());
    let drawn = spawn_blocking(move || preview::png(&queens, &format!("N = {n}"), &number)).await;
    drawn.map_err(|error| Refusal::internal(error.to_string()))
}
