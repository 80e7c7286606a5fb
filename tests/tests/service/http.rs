//! The HTTP service of the real program: pages, JSON, metrics and authorization.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

use auth::Role;
use proto::{
    connect::{CoordinatorEndpoint, JoinString},
    v1::{WatchStatusRequest, runs_client::RunsClient},
};
use reqwest::{Method, header::HeaderMap};
use serde_json::{Value, json};
use store::run_off_runtime;
use tests::{
    cluster::Cluster,
    process::{PATIENCE, Process, queensctl, wait_until, within},
    service::{find_join, http_client},
};

/// An answer with any status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: String,
    headers: HeaderMap,
}

impl Answer {
    /// Parses the body.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Makes a request to `url` with these headers; a body is sent as JSON.
pub(super) fn ask(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
    let method: Method = method.parse().expect("a method");
    let mut request = http_client().request(method, url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_owned());
    }
    let answer = request.send().unwrap_or_else(|error| panic!("{url}: {error:?}"));
    Answer {
        code: answer.status().as_u16(),
        headers: answer.headers().clone(),
        body: answer.text().expect("text"),
    }
}

/// Returns the differences of `value` from an OpenAPI schema of `api`.
fn misfits(api: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.trim_start_matches('#');
        let schema = api.pointer(pointer);
        let schema = schema.unwrap_or_else(|| panic!("{reference} is missing"));
        return misfits(api, schema, value, at);
    }
    if let Some(schemas) = schema["anyOf"].as_array() {
        let differences = schemas.iter().map(|schema| misfits(api, schema, value, at));
        return differences.min_by_key(Vec::len).unwrap_or_default();
    }
    let mut wrong = Vec::new();
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => Vec::from_iter(kind.as_str()),
    };
    let fits = |allowed: &&str| *allowed == kind || (*allowed == "number" && kind == "integer");
    if !allowed.iter().any(fits) {
        wrong.push(format!("{at}: {kind} instead of {allowed:?}"));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        wrong.push(format!("{at}: {value} is not one of {words:?}"));
    }
    if let Some(items) = value.as_array() {
        for (place, item) in items.iter().enumerate() {
            let at = format!("{at}[{place}]");
            let schema = schema["prefixItems"].get(place).unwrap_or(&schema["items"]);
            wrong.extend(misfits(api, schema, item, &at));
        }
    }
    if let (Some(object), Some(described)) = (value.as_object(), schema["properties"].as_object()) {
        for (name, value) in object {
            match described.get(name) {
                Some(schema) => wrong.extend(misfits(api, schema, value, &format!("{at}.{name}"))),
                None => wrong.push(format!("{at}.{name} is not described")),
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !object.contains_key(name) {
                wrong.push(format!("{at}.{name} is missing"));
            }
        }
    }
    wrong
}

/// A coordinator and the URL of its pages.
pub(super) struct Fixture {
    pub(super) cluster: Cluster,
    pub(super) coordinator: Process,
    pub(super) http: String,
}

impl Fixture {
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::of(Cluster::new(&[arguments, &["--http", "127.0.0.1:0"]].concat()))
    }

    /// Kills the coordinator and starts it again.
    pub(super) fn restart(self) -> Self {
        drop(self.coordinator.kill());
        Self::of(self.cluster)
    }

    fn of(cluster: Cluster) -> Self {
        let coordinator = cluster.start(&[]);
        let dashboard = coordinator.stderr_line("dashboard at ");
        let http = dashboard.split("dashboard at ").nth(1).unwrap().trim().to_owned();
        Self { cluster, coordinator, http }
    }

    fn operator(&self) -> JoinString {
        find_join(&self.cluster.data_dir(), Role::Operator).expect("a started coordinator")
    }

    /// Makes a request as an operator.
    fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let bearer = format!("Bearer {}", self.operator().token().expose());
        let headers = [headers, &[("authorization", &bearer)]].concat();
        ask(method, &format!("{}{path}", self.http), &headers, body)
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], None)
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
        self.ask("POST", path, headers, body)
    }

    /// Returns the JSON that `queensctl` prints.
    fn queensctl(&self, arguments: &[&str]) -> Value {
        self.cluster.queensctl(arguments).json()
    }
}

/// Sends these bytes and returns the first line of the answer.
fn raw(url: &str, request: &str) -> String {
    let address = url.split("://").nth(1).expect("an address");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// Checks for an error with this code and a message that contains `part`.
fn refused(answer: &Answer, code: u16, part: &str) {
    assert_eq!(answer.code, code, "{answer:#?}");
    let message = answer.json()["error"]["message"].clone();
    let message = message.as_str().expect("a message");
    assert!(message.contains(part), "'{part}' in {message}");
}

/// Checks the answer against the OpenAPI description.
fn as_described(api: &Value, method: &str, route: &str, answer: &Answer) {
    let code = match answer.code {
        200 => "200",
        _ => "default",
    };
    let described = &api["paths"][route][method]["responses"][code]["content"];
    let kind = answer.header("content-type").and_then(|kind| kind.split(';').next());
    let schema = &described[kind.expect("a content type")]["schema"];
    assert!(schema.is_object(), "{method} {route} {code} is not described");
    if kind != Some("application/json") {
        return;
    }
    let wrong = misfits(api, schema, &answer.json(), "answer");
    assert!(wrong.is_empty(), "{method} {route}: {wrong:#?}");
}

#[test]
fn json_matches_queensctl() {
    let fixture = Fixture::start(&["--n", "12"]);
    // Except for the time between the two requests.
    let without_time = |mut status: Value| {
        status["waiting_seconds"].take();
        status
    };
    let answer = || {
        let status = fixture.get("/api/v1/status");
        assert_eq!(status.header("content-type"), Some("application/json"));
        without_time(status.json())
    };
    let mut compared = None;
    // The coordinator measures the free space of its disk now and then, also between two requests.
    wait_until("nothing changes between two requests", || {
        let before = answer();
        let printed = without_time(fixture.queensctl(&["status", "--json"]));
        let is_unchanged = answer() == before;
        compared = Some((before, printed));
        is_unchanged
    });
    let (answered, printed) = compared.expect("two requests");
    assert_eq!(answered, printed);
    let runs = fixture.get("/api/v1/runs").json();
    assert_eq!(runs["runs"][0], fixture.queensctl(&["runs", "--json"]));
}

/// A finished run and an open one, with a worker.
#[test]
fn every_documented_route_answers_as_described() {
    let fixture = Fixture::start(&["--n", "10"]);
    let _worker = fixture.cluster.worker("bench-1");
    fixture.coordinator.stdout_line("N = 10: 724 solutions");
    let api = fixture.get("/api/v1/openapi.json").json();
    let mut left = BTreeSet::new();
    for (route, methods) in api["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        left.extend(methods.map(|method| (method.clone(), route.clone())));
    }
    let recheck = Some(r#"{"recheck":"all"}"#);
    let submit = Some(r#"{"n":22}"#);
    for (method, route, query, body, code) in [
        ("get", "/healthz", "", None, 200),
        ("get", "/readyz", "", None, 200),
        ("get", "/metrics", "", None, 200),
        ("get", "/api/v1/openapi.json", "", None, 200),
        // The finished run.
        ("get", "/api/v1/status", "?run=last", None, 200),
        ("get", "/api/v1/runs", "", None, 200),
        ("get", "/api/v1/runs/{run}", "", None, 200),
        ("get", "/api/v1/runs/{run}/map", "", None, 200),
        ("get", "/api/v1/runs/{run}/map", "?first=1&tasks=1", None, 200),
        ("get", "/api/v1/runs/{run}/grid", "", None, 200),
        ("get", "/api/v1/runs/{run}/grid", "?sheet=0&row=0&rows=1", None, 200),
        ("get", "/api/v1/runs/{run}/tasks/{task}", "", None, 200),
        ("get", "/api/v1/runs/{run}/history", "", None, 200),
        ("get", "/api/v1/runs/{run}/credits", "", None, 200),
        ("get", "/api/v1/events", "?run=last&after=1", None, 200),
        ("get", "/api/v1/workers", "?limit=1", None, 200),
        ("post", "/api/v1/runs/{run}/recheck", "", recheck, 200),
        // An open one.
        ("post", "/api/v1/runs", "", submit, 200),
        ("post", "/api/v1/runs", "", submit, 409),
        ("get", "/api/v1/status", "", None, 200),
        ("post", "/api/v1/runs/{run}/priority", "", Some(r#"{"priority":-3}"#), 200),
        ("post", "/api/v1/runs/{run}/pause", "", None, 200),
        ("post", "/api/v1/runs/{run}/resume", "", None, 200),
        ("post", "/api/v1/runs/{run}/retry", "", None, 200),
        ("post", "/api/v1/join", "?role=viewer&name=lab", None, 200),
        ("post", "/api/v1/join", "?name=lab", None, 400),
        ("get", "/api/v1/cost", "?n=16&method=frames", None, 200),
        // Not barred.
        ("post", "/api/v1/workers/{worker}/trust", "", None, 409),
        ("post", "/api/v1/workers/{worker}/drain", "", None, 200),
        ("post", "/api/v1/runs/{run}/cancel", "", None, 200),
        ("delete", "/api/v1/runs/{run}", "", None, 200),
    ] {
        let names = [("{run}", "last"), ("{task}", "0"), ("{worker}", "bench-1")];
        let replaced = |path: String, (name, value)| path.replace(name, value);
        let path = names.into_iter().fold(route.to_owned(), replaced);
        let answer = fixture.ask(&method.to_uppercase(), &format!("{path}{query}"), &[], body);
        assert_eq!(answer.code, code, "{method} {route}: {answer:#?}");
        as_described(&api, method, route, &answer);
        left.remove(&(method.to_owned(), route.to_owned()));
    }
    assert!(left.is_empty(), "not fetched: {left:?}");
}

#[test]
fn a_finished_run_has_a_result_and_synced_counts() {
    let fixture = Fixture::start(&["--n", "10"]);
    let _worker = fixture.cluster.worker("bench-1");
    fixture.coordinator.stdout_line("N = 10: 724 solutions");
    let status = fixture.get("/api/v1/status?run=last");
    assert_eq!(status.json()["result"]["solutions"], "724");
    assert_eq!(status.json()["result"]["published"], "matches");
    assert_eq!(status.json()["workers"][0]["threads"], 1);
    let answer = fixture.post("/api/v1/runs/last/recheck", &[], Some(r#"{"recheck":"much"}"#));
    refused(&answer, 400, "recheck");
    refused(&fixture.get("/api/v1/status?ran=last"), 400, "ran");
    let metrics = fixture.get("/metrics").body;
    let synced =
        metrics.lines().find_map(|line| line.strip_prefix("queens_store_sync_seconds_count "));
    let synced: u64 = synced.expect("a count of syncs").parse().unwrap();
    assert!(synced > 0, "its counts are on the disk: {metrics}");
}

#[test]
fn commands_change_the_state_of_a_run() {
    let fixture = Fixture::start(&["--n", "12"]);
    for (word, state) in [("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")] {
        let answer = fixture.post(&format!("/api/v1/runs/last/{word}"), &[], None);
        assert_eq!(answer.json()["state"], state);
    }
    assert_eq!(fixture.ask("DELETE", "/api/v1/runs/last", &[], None).code, 200);
    refused(&fixture.get("/api/v1/status"), 404, "queensctl submit");
}

#[test]
fn a_run_is_submitted_as_over_grpc() {
    let fixture = Fixture::start(&[]);
    let api = fixture.get("/api/v1/openapi.json").json();
    let submit = |body: &Value| fixture.post("/api/v1/runs", &[], Some(&body.to_string()));
    let route = "/api/v1/runs";
    let request = json!({
        "n": 16, "method": "rows", "layout": "border", "task_cost": 100_000, "priority": 3,
        "recheck": "0.5", "new_run": false, "key": "nightly:7",
    });
    // The request has exactly the described fields.
    let described = &api["paths"][route]["post"]["requestBody"]["content"]["application/json"];
    let wrong = misfits(&api, &described["schema"], &request, "request");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let fields = api["components"]["schemas"]["SubmitBody"]["properties"].as_object().unwrap();
    assert_eq!(fields.len(), request.as_object().unwrap().len());
    let first = submit(&request);
    as_described(&api, "post", route, &first);
    let started = first.json();
    assert_eq!((&started["n"], &started["state"]), (&json!(16), &json!("running")));
    assert_eq!(started, fixture.queensctl(&["runs", "--json"]));
    assert_eq!(submit(&request).json()["run"], started["run"], "the same key");
    // gRPC refuses the same request, and names its own flag.
    let again = ["submit", "--n", "16", "--method", "rows", "--layout", "border"];
    let twice = fixture.cluster.queensctl(&again).stderr;
    let there = submit(&json!({ "n": 16, "method": "rows", "layout": "border" }));
    refused(&there, 409, "already exists");
    let message = there.json()["error"]["message"].clone();
    let (there, how) = message.as_str().unwrap().split_once(": ").unwrap();
    assert!(twice.contains(there) && twice.contains("--new-run"), "{there} in {twice}");
    assert_eq!(how, "use it, or request a new run");
    let other_use = json!({ "n": 17, "key": "nightly:7" });
    refused(&submit(&other_use), 400, "give another key");
    for (request, part) in [
        (json!({ "n": 33 }), "n: "),
        (json!({ "n": 300 }), "from 1 to 32"),
        (json!({ "n": -1 }), "from 1 to 32"),
        (json!({ "n": 18, "method": "guess" }), "method: "),
        (json!({ "n": 18, "layout": "middle" }), "layout: "),
        (json!({ "n": 18, "method": "frames", "layout": "border" }), "method: "),
        (json!({ "n": 18, "task_cost": 0 }), "task_cost: "),
        (json!({ "n": 20, "method": "rows", "task_cost": 1 }), "tasks"),
        (json!({ "n": 18, "recheck": "2" }), "recheck: "),
        (json!({ "n": 18, "key": "a b" }), "key"),
    ] {
        refused(&submit(&request), 400, part);
    }
    refused(&submit(&json!({ "n": 18, "m": 1 })), 422, "m");
    assert_eq!(fixture.get(route).json()["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn workers_are_listed_in_pages() {
    let fixture = Fixture::start(&["--n", "10"]);
    let empty = fixture.get("/workers");
    assert_eq!((empty.code, empty.body.contains("None")), (200, true));
    let _worker = fixture.cluster.worker("bench-1");
    fixture.coordinator.stdout_line("N = 10: 724 solutions");
    let shown = fixture.get("/workers").body;
    assert!(shown.contains("1 to 1 of 1"), "{shown}");
    assert!(shown.contains("bench-1"), "{shown}");
    assert!(shown.contains("Crews"), "{shown}");
    assert!(shown.contains("<td data-head=\"Share\">100.00 %</td>"), "{shown}");
    assert!(fixture.get("/workers?from=1").body.contains("None"));
    let bad = fixture.get("/workers?from=-1");
    assert_eq!(bad.code, 400);
    assert!(bad.body.contains("expected a whole number, at least 0"), "{}", bad.body);
}

#[test]
fn a_finished_run_has_a_certificate_a_picture_and_tasks_that_explain_themselves() {
    let fixture = Fixture::start(&["--n", "10", "--method", "frames"]);
    let _worker = fixture.cluster.worker("bench-1");
    fixture.coordinator.stdout_line("N = 10: 724 solutions");
    let page = fixture.get("/runs/last").body;
    let run = fixture.queensctl(&["runs", "--json"])["run"].as_str().unwrap().to_owned();
    let picture = format!("content=\"{}/runs/{run}/preview.png\"", fixture.http);
    for part in
        [&picture, "N = 10: 724 solutions", "queensctl audit n10.json", "certificate.json.counts"]
    {
        assert!(page.contains(part), "'{part}' in {page}");
    }
    // The certificate is the one that queensctl makes.
    let offline = |arguments: &[&str]| Process::run(queensctl(arguments)).ok();
    let dir = fixture.cluster.data_dir();
    let out = dir.with_extension("json");
    offline(&["certify", dir.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let certificate = fixture.get("/runs/last/certificate.json").body;
    assert_eq!(certificate, std::fs::read_to_string(&out).unwrap());
    refused(&fixture.get("/runs/last/other.json"), 404, "no file other.json");
    // A task's page shows the numbers of the command that it names.
    let task = fixture.get("/runs/last/tasks/0").body;
    let command = task.split("<code>queensctl ").nth(1).unwrap().split('<').next().unwrap();
    let frames = offline(&command.split(' ').collect::<Vec<_>>()).stdout;
    for line in frames.lines().skip(1).take(8) {
        let (name, number) = line.rsplit_once(' ').unwrap();
        let row = format!("{}</th><td>{number}</td>", name.trim());
        assert!(task.contains(&row), "'{row}' in {task}");
    }
    // Events are filtered by kind.
    let kinds = |of: &str| {
        let events = fixture.get(&format!("/api/v1/events?kind={of}")).json();
        let events = events["events"].as_array().unwrap().iter();
        events.map(|event| event["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("submitted,complete"), ["submitted", "complete"]);
    assert_eq!(kinds("nonsense"), [""; 0]);
    let page = fixture.get("/events?kind=complete").body;
    assert!(page.contains("1 event<") && page.contains("no check failed"), "{page}");
    let printed = fixture.cluster.queensctl(&["events", "--kind", "submitted,complete", "--json"]);
    assert_eq!(printed.ok().stdout.lines().count(), 2);
    fixture.queensctl(&["submit", "--n", "22", "--json"]);
    refused(&fixture.get("/runs/last/certificate.json"), 409, "not complete");
}

#[test]
fn bad_requests_are_refused_with_the_reason() {
    let fixture = Fixture::start(&["--n", "14"]);
    refused(&fixture.get("/api/v1/nothing"), 404, "openapi.json");
    refused(&fixture.get("/api/v1/runs/xyz"), 404, "no run matches");
    refused(&fixture.get("/nowhere"), 404, "/nowhere not found");
    // Browsers get a page.
    for path in ["/nowhere", "/runs/xyz"] {
        let answer = fixture.ask("GET", path, &[("accept", "text/html,*/*;q=0.8")], None);
        assert_eq!(answer.code, 404, "{path}");
        assert!(answer.body.starts_with("<!DOCTYPE html>"), "{path}: {}", answer.body);
    }
    refused(&fixture.get("/api/v1/runs/0123"), 404, "0123");
    refused(&fixture.get("/api/v1/runs/last/tasks/999999"), 404, "no task");
    refused(&fixture.post("/api/v1/status", &[], None), 405, "is not supported for");
    refused(&fixture.post("/api/v1/runs/last/recheck", &[], Some("{")), 400, "");
    let much = format!(r#"{{"recheck":"{}"}}"#, "x".repeat(100_000));
    let answer = fixture.post("/api/v1/runs/last/recheck", &[], Some(&much));
    assert_eq!(answer.code, 413, "{answer:#?}");
    // A head that is too long is not read to its end.
    let long = "x".repeat(40_000);
    let answer = fixture.ask("GET", "/api/v1/status", &[("x-long", &long)], None);
    assert_eq!(answer.code, 431, "{answer:#?}");
    // A join string needs a token, which an insecure coordinator does not have.
    let open = Fixture::start(&["--insecure"]);
    let answer = ask("POST", &format!("{}/api/v1/join", open.http), &[], None);
    refused(&answer, 409, "--coordinator");
}

#[test]
fn requests_from_other_sites_and_for_other_hosts_are_refused() {
    let fixture = Fixture::start(&["--n", "14", "--http-host", "queens.lab.example"]);
    let by_proxy = fixture.ask("GET", "/api/v1/status", &[("host", "Queens.lab.example")], None);
    assert_eq!(by_proxy.code, 200, "{by_proxy:#?}");
    let own = fixture.http.as_str();
    for headers in [
        [("origin", "https://elsewhere.example")],
        [("origin", "null")],
        [("sec-fetch-site", "cross-site")],
    ] {
        let answer = fixture.post("/api/v1/runs/last/cancel", &headers, None);
        refused(&answer, 403, "another site");
    }
    let rebound = [("host", "elsewhere.example")];
    let url = format!("{own}/api/v1/status");
    refused(&ask("GET", &url, &rebound, None), 421, "elsewhere.example");
    // Credentials do not replace the check: without authentication any would do.
    let runs = format!("{own}/api/v1/runs");
    let rebound = [
        ("host", "evil.example:7172"),
        ("origin", "http://evil.example:7172"),
        ("sec-fetch-site", "same-origin"),
        ("authorization", "Bearer x"),
    ];
    refused(&ask("POST", &runs, &rebound, Some(r#"{"n":8}"#)), 421, "--http-host");
    for host in ["a{b.evil.example", "", "evil.example\r\nHost: localhost"] {
        let answer = raw(own, &format!("GET /api/v1/status HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400"), "{host:?}: {answer}");
    }
    assert_eq!(fixture.get("/api/v1/runs").json()["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(fixture.get("/api/v1/status").json()["state"], "running");
    let answer = fixture.post("/api/v1/runs/last/pause", &[("origin", own)], None);
    assert_eq!(answer.json()["state"], "paused");
    for answer in [fixture.get("/api/v1/status"), fixture.get("/nothing")] {
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
    }
}

/// Creates a token of this role and returns the JSON that shows it.
fn create_token(operator: &str, role: &str) -> Value {
    let create = ["token", "create", "--json", "--role", role, "--name", &format!("a-{role}")];
    Process::run(queensctl(&create).env("QUEENS_JOIN", operator)).json()
}

#[tokio::test]
async fn open_streams_end_with_their_token_and_say_why() {
    let fixture = Fixture::start(&["--n", "14"]);
    let operator = fixture.operator().expose();
    let viewer = create_token(&operator, "viewer");
    let join = viewer["join"].as_str().unwrap().parse::<JoinString>().unwrap();
    let viewing = CoordinatorEndpoint::Token(join).connect().await.unwrap();
    let mut runs = RunsClient::new(viewing);
    let request = WatchStatusRequest { run: None, interval_ms: 50 };
    let statuses = runs.watch_status(request).await.unwrap();
    let mut statuses = statuses.into_inner();
    assert!(statuses.message().await.unwrap().is_some());

    let host = fixture.http.strip_prefix("http://").unwrap();
    let bearer = viewer["bearer"].as_str().unwrap();
    let runs = run_off_runtime(|| fixture.get("/api/v1/runs").json());
    let run = runs["runs"][0]["run"].as_str().unwrap();
    let mut page = TcpStream::connect(host).unwrap();
    page.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        page,
        "GET /runs/{run}/events HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: Bearer {bearer}\r\n\r\n"
    )
    .unwrap();
    let mut first = [0; 12];
    page.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");

    let revoke = |name: &str| {
        Process::run(queensctl(&["token", "revoke", name]).env("QUEENS_JOIN", &operator)).ok()
    };
    revoke("a-viewer");
    let ended = within("the stream ends", async {
        loop {
            if let Err(status) = statuses.message().await {
                return status;
            }
        }
    });
    let ended = ended.await;
    assert_eq!(ended.code(), tonic::Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("'a-viewer' was revoked"), "{ended}");
    let mut rest = String::new();
    page.read_to_string(&mut rest).expect("the page's stream ends");
    let last = rest.rsplit("event: ").next().unwrap();
    assert!(last.starts_with("ended") && last.contains("'a-viewer' was revoked"), "{last}");

    // A token may revoke itself.
    assert_eq!(revoke("operator").stdout, "1 token revoked");
}

#[test]
fn tokens_permit_what_their_role_may() {
    let fixture = Fixture::start(&["--n", "14"]);
    let operator = fixture.operator().expose();
    let token = |role: &str| {
        let created = create_token(&operator, role);
        format!("Bearer {}", created["bearer"].as_str().expect("a bearer"))
    };
    let (worker, viewer, operator) = (token("worker"), token("viewer"), token("operator"));
    let ask = |method: &str, path: &str, bearer: Option<&str>| {
        let headers: Vec<_> = bearer.map(|bearer| ("authorization", bearer)).into_iter().collect();
        ask(method, &format!("{}{path}", fixture.http), &headers, None)
    };
    assert_eq!(ask("GET", "/healthz", None).code, 200);
    assert_eq!(ask("GET", "/readyz", None).json(), json!({ "ready": true }));
    for path in ["/api/v1/status", "/metrics"] {
        let answer = ask("GET", path, None);
        refused(&answer, 401, "token");
        assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
        refused(&ask("GET", path, Some("Bearer nonsense")), 401, "invalid token or join string");
        refused(&ask("GET", path, Some("Basic abc")), 401, "Bearer TOKEN");
        refused(&ask("GET", path, Some(&worker)), 403, "has role worker");
        assert_eq!(ask("GET", path, Some(&viewer)).code, 200);
        // Schemes ignore case (RFC 9110).
        let lower = viewer.replace("Bearer", "bearer");
        assert_eq!(ask("GET", path, Some(&lower)).code, 200);
    }
    let cancel = "/api/v1/runs/last/cancel";
    refused(&ask("POST", cancel, Some(&viewer)), 403, "has role viewer");
    for bearer in [&viewer, &worker] {
        refused(&ask("POST", "/api/v1/runs", Some(bearer)), 403, "has role");
    }
    assert_eq!(ask("POST", cancel, Some(&operator)).json()["state"], "cancelled");
}

/// The body exceeds the buffers of the sockets, so the server answers while the client still sends.
#[test]
fn a_refusal_before_the_body_is_read_arrives() {
    let fixture = Fixture::start(&["--n", "14"]);
    let body = "x".repeat(16 << 20);
    let head = format!("Host: localhost\r\nContent-Length: {}\r\n", body.len());
    for (path, code) in [("/api/v1/runs", "401"), ("/nothing", "404")] {
        let line = raw(&fixture.http, &format!("POST {path} HTTP/1.1\r\n{head}\r\n{body}"));
        assert!(line.starts_with(&format!("HTTP/1.1 {code}")), "{path}: {line}");
    }
}

/// A link logs in once, and then says how to get another link. The session survives a restart.
#[test]
fn a_link_logs_one_browser_in() {
    let fixture = Fixture::start(&["--n", "14"]);
    let link = fixture.queensctl(&["dashboard", "--json"]);
    let link = link["url"].as_str().expect("a link");
    assert!(link.starts_with(&format!("{}/login/", fixture.http)), "{link}");
    // A preview of the link does not consume it.
    for method in ["HEAD", "GET"] {
        let preview = ask(method, link, &[], None);
        assert_eq!((preview.code, preview.header("set-cookie")), (200, None), "{preview:#?}");
    }
    let logged_in = ask("POST", link, &[], None);
    assert_eq!((logged_in.code, logged_in.header("location")), (303, Some("/")), "{logged_in:#?}");
    let cookie = logged_in.header("set-cookie").and_then(|cookie| cookie.split(';').next());
    let cookie = [("cookie", cookie.expect("a session"))];
    let pause = format!("{}/api/v1/runs/last/pause", fixture.http);
    assert_eq!(ask("POST", &pause, &cookie, None).json()["state"], "paused");
    let again = ask("GET", link, &[], None);
    assert!(again.body.contains("has expired or was already used"), "{again:#?}");
    assert!(again.body.contains("Run `queensctl dashboard` for a new one."), "{again:#?}");
    assert_eq!(again.header("set-cookie"), None);
    let fixture = fixture.restart();
    let url = |path: &str| format!("{}{path}", fixture.http);
    assert_eq!(ask("GET", &url("/api/v1/status"), &cookie, None).json()["state"], "paused");
    assert_eq!(ask("POST", &url("/logout"), &cookie, None).code, 303);
    let fixture = fixture.restart();
    let status = format!("{}/api/v1/status", fixture.http);
    refused(&ask("GET", &status, &cookie, None), 401, "token");
}

#[test]
fn metrics_are_what_monitoring_reads() {
    let fixture = Fixture::start(&["--n", "12"]);
    let status = fixture.get("/api/v1/status").json();
    let total = status["tasks"]["total"].as_u64().expect("a number");
    let run = status["run"].as_str().expect("a name");
    let answer = fixture.get("/metrics");
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/openmetrics-text"), "{answer:#?}");
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(&answer.body);
    let parsed = parsed.unwrap_or_else(|error| panic!("{error}\n{}", answer.body));
    let tasks = |metrics: &str, n: &str, state: &str| -> u64 {
        let lines = metrics.lines().filter(|line| line.starts_with("queens_run_tasks{"));
        let mut lines = lines.filter(|line| line.contains(n) && line.contains(state));
        let number = lines.next().and_then(|line| line.rsplit(' ').next());
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{n}: {metrics}"))
    };
    assert_eq!(tasks(&answer.body, "n=\"12\"", "\"pending\""), total);
    // Workers get no tasks of a run that waits for another, is paused or is cancelled.
    fixture.queensctl(&["submit", "--n", "11", "--json"]);
    for (command, is_served) in [("pause", false), ("resume", true), ("cancel", false)] {
        fixture.post(&format!("/api/v1/runs/{run}/{command}"), &[], None);
        let now = fixture.get("/metrics").body;
        let [first, second] = ["n=\"12\"", "n=\"11\""];
        let wanted = [first, second].map(|n| tasks(&now, n, "\"pending\"") > 0);
        assert_eq!(wanted, [is_served, !is_served], "{command}: {now}");
        let waiting = tasks(&now, first, "\"waiting\"");
        assert_eq!(waiting, if is_served { 0 } else { total }, "{command}: {now}");
    }
    for (name, family) in &parsed.families {
        assert!(name.starts_with("queens_"), "{name}");
        assert!(!family.help.is_empty() && family.help.ends_with('.'), "{name}: {}", family.help);
    }
    let names = "build runs run_tasks run_progress_ratio workers http_requests store_sync_seconds \
                 data_disk_free_bytes data_disk_size_bytes";
    for name in names.split(' ').map(|name| format!("queens_{name}")) {
        assert!(parsed.families.contains_key(&name), "{name} in {}", answer.body);
    }
}
