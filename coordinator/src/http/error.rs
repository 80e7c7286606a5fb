//! Refusals, as JSON with the HTTP status that fits.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tonic::{Code, Status};

use crate::driver::{RequestError, Stopped};

/// Why a request was not followed.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    /// One line: what is wrong, and what to do about it.
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

/// The same refusals as over gRPC.
impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Code::Ok | Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(code, status.message())
    }
}

impl From<Stopped> for Refusal {
    fn from(stopped: Stopped) -> Self {
        Status::from(stopped).into()
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Status::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { code, message } = self;
        let reason = code.canonical_reason().unwrap_or("error");
        let reason = reason.to_lowercase().replace(' ', "_");
        let body = json!({ "error": { "code": reason, "message": message } });
        let mut response = (code, Json(body)).into_response();
        if code == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"queens\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
