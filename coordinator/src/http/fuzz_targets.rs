//! Fuzz entry points for requests.

use axum::{
    Form, Json,
    body::Body,
    extract::{FromRequest as _, Query, Request},
    http::{HeaderMap, HeaderValue, Method, Uri, header},
};
use scheduler::ledger::Recheck;
use view::RunSelector;

use super::{
    api::{MapQuery, RecheckRequest, StatusQuery, SubmitBody},
    machines::FromWorker,
    map::Window,
    sessions::{Login, session},
    volunteers::TabCall,
};

/// Reads a request as the routes do: a line with the URI, one with cookies, a body.
pub fn http_request(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let [address, cookies, body] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let mut headers = HeaderMap::new();
    if let Ok(cookies) = HeaderValue::from_bytes(cookies) {
        headers.insert(header::COOKIE, cookies);
        if let Some(session) = session(&headers) {
            assert!(!session.contains(';'), "one cookie: {session:?}");
        }
    }
    if let Ok(uri) = Uri::try_from(address) {
        for segment in uri.path().split('/') {
            let _ = segment.parse::<RunSelector>();
        }
        let _ = Query::<StatusQuery>::try_from_uri(&uri);
        let _ = Query::<MapQuery>::try_from_uri(&uri);
        let _ = Query::<Window>::try_from_uri(&uri);
        let _ = Query::<FromWorker>::try_from_uri(&uri);
    }
    let request = |kind: &'static str| {
        let mut request = Request::new(Body::from(body.to_vec()));
        let kind = HeaderValue::from_static(kind);
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
        *request.method_mut() = Method::POST;
        request
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else {
        return;
    };
    runtime.block_on(async {
        let json = Json::<RecheckRequest>::from_request(request("application/json"), &()).await;
        if let Ok(Json(read)) = json {
            let _ = read.recheck.parse::<Recheck>();
        }
        let json = Json::<SubmitBody>::from_request(request("application/json"), &()).await;
        if let Ok(Json(read)) = json
            && let Ok(message) = read.message()
        {
            let _ = proto::submitted_spec(message.spec);
            let _ = proto::submitted_key(&message.idempotency_key);
            let _ = proto::requested_recheck(message.recheck);
        }
        let json = Json::<TabCall>::from_request(request("application/json"), &()).await;
        if let Ok(Json(read)) = json {
            let _ = worker::package::Lines::read(read.lines.as_bytes());
        }
        let form = request("application/x-www-form-urlencoded");
        let _ = Form::<Login>::from_request(form, &()).await;
    });
}
