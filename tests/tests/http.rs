//! The HTTP face of the real program: what it tells, whom it tells it, and what it refuses.

use std::process::Command;

use serde_json::{Value, json};
use tests::{
    binaries::binaries,
    http::{Answer, ask, misfits},
    process::Process,
};

/// A coordinator with a run, and its two ports.
struct House {
    coordinator: Process,
    http: String,
    grpc: String,
    _dir: tempfile::TempDir,
}

impl House {
    fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&binaries().coordinator);
        command
            .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(arguments)
            .arg("--data-dir")
            .arg(dir.path().join("data"));
        let coordinator = Process::start("the coordinator", &mut command);
        let listening = coordinator.stderr_line("listening on ");
        let address = listening.split("listening on ").nth(1).unwrap();
        let grpc = address.split(": ").next().unwrap();
        let dashboard = coordinator.stderr_line("dashboard at ");
        let http = dashboard.split("dashboard at ").nth(1).unwrap().trim();
        Self {
            grpc: format!("http://{grpc}"),
            http: http.to_owned(),
            coordinator,
            _dir: dir,
        }
    }

    fn get(&self, path: &str) -> Answer {
        ask("GET", &format!("{}{path}", self.http), &[], None)
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
        ask("POST", &format!("{}{path}", self.http), headers, body)
    }

    fn queensctl(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(&binaries().queensctl);
        command.args(["--coordinator", &self.grpc]).args(arguments);
        let end = Process::run("queensctl", &mut command);
        assert_eq!(end.code, Some(0), "{end:#?}");
        serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:#?}"))
    }
}

/// The answer is a refusal with this code that says `part`.
fn refused(answer: &Answer, code: u16, part: &str) {
    assert_eq!(answer.code, code, "{answer:#?}");
    let message = answer.json()["error"]["message"].clone();
    let message = message.as_str().expect("a message");
    assert!(message.contains(part), "'{part}' in {message}");
}

/// The answer is what the description says of this request.
fn as_described(api: &Value, method: &str, route: &str, answer: &Answer) {
    let code = match answer.code {
        200 => "200",
        _ => "default",
    };
    let described = &api["paths"][route][method]["responses"][code]["content"];
    let schema = &described["application/json"]["schema"];
    assert!(
        schema.is_object(),
        "{method} {route} {code} is not described"
    );
    let wrong = misfits(api, schema, &answer.json(), "answer");
    assert!(wrong.is_empty(), "{method} {route}: {wrong:#?}");
}

#[test]
fn the_json_is_that_of_queensctl_and_of_its_description() {
    let house = House::start(&["--n", "12"]);
    let api = house.get("/api/v1/openapi.json").json();
    let status = house.get("/api/v1/status");
    assert_eq!(status.kind, "application/json");
    assert_eq!(status.json(), house.queensctl(&["status", "--json"]));
    let runs = house.get("/api/v1/runs").json();
    assert_eq!(runs["runs"][0], house.queensctl(&["runs", "--json"]));
    let run = runs["runs"][0]["run"].as_str().expect("a name").to_owned();
    for route in [
        "/healthz",
        "/readyz",
        "/api/v1/status",
        "/api/v1/workers",
        "/api/v1/runs",
        "/api/v1/runs/{run}",
        "/api/v1/runs/{run}/map",
        "/api/v1/runs/{run}/grid",
        "/api/v1/runs/{run}/tasks/{task}",
        "/api/v1/runs/{run}/history",
    ] {
        let path = route.replace("{run}", &run[..5]).replace("{task}", "0");
        let answer = house.get(&path);
        assert_eq!(answer.code, 200, "{answer:#?}");
        as_described(&api, "get", route, &answer);
    }
    for (word, state) in [
        ("pause", "paused"),
        ("resume", "running"),
        ("cancel", "cancelled"),
    ] {
        let route = format!("/api/v1/runs/{{run}}/{word}");
        let answer = house.post(&route.replace("{run}", "last"), &[], None);
        as_described(&api, "post", &route, &answer);
        assert_eq!(answer.json()["state"], state);
    }
    let path = format!("{}/api/v1/runs/{run}", house.http);
    let deleted = ask("DELETE", &path, &[], None);
    as_described(&api, "delete", "/api/v1/runs/{run}", &deleted);
    let gone = house.get("/api/v1/status");
    refused(&gone, 404, "queensctl submit");
    as_described(&api, "get", "/api/v1/status", &gone);
}

#[test]
fn a_finished_run_is_told_in_the_same_way() {
    let house = House::start(&["--n", "10"]);
    let mut worker = Command::new(&binaries().worker);
    let spool = tempfile::tempdir().unwrap();
    worker
        .args(["--coordinator", &house.grpc, "--threads", "1", "--spool"])
        .arg(spool.path());
    let _worker = Process::start("the worker", &mut worker);
    house.coordinator.stdout_line("N = 10: 724 solutions");
    let api = house.get("/api/v1/openapi.json").json();
    let status = house.get("/api/v1/status?run=last");
    as_described(&api, "get", "/api/v1/status", &status);
    assert_eq!(status.json()["result"]["solutions"], "724");
    assert_eq!(status.json()["workers"][0]["threads"], 1);
    let answer = house.post(
        "/api/v1/runs/last/recheck",
        &[],
        Some(r#"{"recheck":"much"}"#),
    );
    refused(&answer, 400, "recheck");
    let answer = house.post(
        "/api/v1/runs/last/recheck",
        &[],
        Some(r#"{"recheck":"all"}"#),
    );
    assert_eq!(answer.code, 200, "{answer:#?}");
    let metrics = house.get("/metrics").body;
    let synced = metrics
        .lines()
        .find_map(|line| line.strip_prefix("queens_store_sync_seconds_count "));
    let synced: u64 = synced.expect("a count of syncs").parse().unwrap();
    assert!(synced > 0, "its counts are on the disk: {metrics}");
}

#[test]
fn a_run_is_submitted_as_over_grpc() {
    let house = House::start(&[]);
    let api = house.get("/api/v1/openapi.json").json();
    let submit = |body: &Value| house.post("/api/v1/runs", &[], Some(&body.to_string()));
    let route = "/api/v1/runs";
    let wish = json!({
        "n": 16, "method": "rows", "prefix": "border", "task_cost": 100_000, "priority": 3,
        "recheck": "0.5", "again": false, "key": "nightly:7",
    });
    // Each field that is described is taken, and no other.
    let described = &api["paths"][route]["post"]["requestBody"]["content"]["application/json"];
    let wrong = misfits(&api, &described["schema"], &wish, "wish");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let fields = described["schema"]["properties"].as_object().unwrap();
    assert_eq!(fields.len(), wish.as_object().unwrap().len());
    let first = submit(&wish);
    as_described(&api, "post", route, &first);
    let started = first.json();
    assert_eq!(
        (&started["n"], &started["state"]),
        (&json!(16), &json!("running"))
    );
    assert_eq!(started, house.queensctl(&["runs", "--json"]));
    assert_eq!(submit(&wish).json()["run"], started["run"], "the same key");
    // What the gRPC face says of such wishes, in its words.
    let mut command = Command::new(&binaries().queensctl);
    command.args(["--coordinator", &house.grpc, "submit", "--n", "16"]);
    command.args(["--method", "rows", "--prefix", "border"]);
    let twice = Process::run("queensctl", &mut command).stderr;
    let there = submit(&json!({ "n": 16, "method": "rows", "prefix": "border" }));
    refused(&there, 409, "is there already");
    let said = there.json()["error"]["message"].clone();
    assert!(twice.contains(said.as_str().unwrap()), "{said} in {twice}");
    let other_use = json!({ "n": 17, "key": "nightly:7" });
    refused(&submit(&other_use), 400, "give another key");
    for (wish, part) in [
        (json!({ "n": 33 }), "n: "),
        (json!({ "n": 18, "method": "guess" }), "method: "),
        (json!({ "n": 18, "prefix": "middle" }), "prefix: "),
        (
            json!({ "n": 18, "method": "frames", "prefix": "border" }),
            "method: ",
        ),
        (json!({ "n": 18, "task_cost": 0 }), "task_cost: "),
        (
            json!({ "n": 20, "method": "rows", "task_cost": 1 }),
            "tasks",
        ),
        (json!({ "n": 18, "recheck": "2" }), "recheck: "),
        (json!({ "n": 18, "key": "a b" }), "key"),
    ] {
        refused(&submit(&wish), 400, part);
    }
    refused(&submit(&json!({ "n": 18, "m": 1 })), 422, "m");
    assert_eq!(house.get(route).json()["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn all_workers_are_on_pages_of_fifty() {
    let house = House::start(&["--n", "10"]);
    let empty = house.get("/workers");
    assert_eq!((empty.code, empty.body.contains("None")), (200, true));
    let spool = tempfile::tempdir().unwrap();
    let mut worker = Command::new(&binaries().worker);
    worker
        .args(["--coordinator", &house.grpc, "--threads", "1"])
        .args(["--name", "<b>bench & co</b>", "--spool"])
        .arg(spool.path());
    let _worker = Process::start("the worker", &mut worker);
    house.coordinator.stdout_line("N = 10: 724 solutions");
    let shown = house.get("/workers").body;
    assert!(shown.contains("1 to 1 of 1"), "{shown}");
    assert!(
        shown.contains("&lt;b&gt;bench &amp; co&lt;/b&gt;") && !shown.contains("<b>"),
        "a name is text, never markup: {shown}"
    );
    assert!(shown.contains("Crews"), "{shown}");
    assert!(house.get("/workers?from=1").body.contains("None"));
    assert_eq!(house.get("/workers?from=x").code, 400);
}

#[test]
fn bad_requests_are_told_what_is_wrong() {
    let house = House::start(&["--n", "14"]);
    refused(&house.get("/api/v1/nothing"), 404, "openapi.json");
    refused(&house.get("/api/v1/runs/xyz"), 400, "names no run");
    refused(&house.get("/api/v1/runs/0123"), 404, "0123");
    refused(&house.get("/api/v1/runs/last/tasks/999999"), 404, "no task");
    refused(&house.post("/api/v1/join", &[], None), 409, "--coordinator");
    refused(&house.post("/api/v1/status", &[], None), 405, "not for");
    refused(
        &house.post("/api/v1/runs/last/recheck", &[], Some("{")),
        400,
        "",
    );
    let much = format!(r#"{{"recheck":"{}"}}"#, "x".repeat(100_000));
    let answer = house.post("/api/v1/runs/last/recheck", &[], Some(&much));
    assert_eq!(answer.code, 413, "{answer:#?}");
    // A head that is too long is not even read to its end.
    let long = "x".repeat(40_000);
    let url = format!("{}/api/v1/status", house.http);
    let answer = ask("GET", &url, &[("x-long", &long)], None);
    assert_eq!(answer.code, 431, "{answer:#?}");
}

#[test]
fn pages_of_other_sites_change_nothing_and_names_of_others_lead_nowhere() {
    let house = House::start(&["--n", "14"]);
    let own = house.http.as_str();
    for headers in [
        [("origin", "https://elsewhere.example")],
        [("origin", "null")],
        [("sec-fetch-site", "cross-site")],
    ] {
        let answer = house.post("/api/v1/runs/last/cancel", &headers, None);
        refused(&answer, 403, "another site");
    }
    let rebound = [("host", "elsewhere.example")];
    let url = format!("{own}/api/v1/status");
    refused(&ask("GET", &url, &rebound, None), 421, "elsewhere.example");
    assert_eq!(house.get("/api/v1/status").json()["state"], "running");
    let answer = house.post("/api/v1/runs/last/pause", &[("origin", own)], None);
    assert_eq!(answer.json()["state"], "paused");
    for answer in [house.get("/api/v1/status"), house.get("/nothing")] {
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
    }
}

#[test]
fn tokens_open_what_their_role_may() {
    let house = House::start(&["--n", "14", "--require-token"]);
    let printed = house.coordinator.stderr_line(" queensctl status");
    let join = printed.trim().strip_prefix("QUEENS_JOIN=").unwrap();
    let operator = join.strip_suffix(" queensctl status").unwrap().to_owned();
    let token = |role: &str| {
        let mut command = Command::new(&binaries().queensctl);
        command.env("QUEENS_JOIN", &operator).args([
            "token",
            "create",
            "--json",
            "--role",
            role,
            "--name",
            &format!("a-{role}"),
        ]);
        let end = Process::run("queensctl", &mut command);
        let made: Value = serde_json::from_str(&end.stdout).expect("one JSON object");
        format!("Bearer {}", made["bearer"].as_str().expect("a bearer"))
    };
    let (worker, viewer, operator) = (token("worker"), token("viewer"), token("operator"));
    let ask = |method: &str, path: &str, bearer: Option<&str>| {
        let headers: Vec<_> = bearer
            .map(|bearer| ("authorization", bearer))
            .into_iter()
            .collect();
        ask(method, &format!("{}{path}", house.http), &headers, None)
    };
    assert_eq!(ask("GET", "/healthz", None).code, 200);
    assert_eq!(ask("GET", "/readyz", None).json(), json!({ "ready": true }));
    for path in ["/api/v1/status", "/metrics"] {
        let answer = ask("GET", path, None);
        refused(&answer, 401, "token");
        assert!(
            answer
                .header("www-authenticate")
                .is_some_and(|value| value.starts_with("Bearer"))
        );
        refused(&ask("GET", path, Some("Bearer nonsense")), 401, "no token");
        refused(&ask("GET", path, Some("Basic abc")), 401, "Bearer TOKEN");
        refused(&ask("GET", path, Some(&worker)), 403, "worker's");
        assert_eq!(ask("GET", path, Some(&viewer)).code, 200);
    }
    let cancel = "/api/v1/runs/last/cancel";
    refused(&ask("POST", cancel, Some(&viewer)), 403, "viewer's");
    for bearer in [&viewer, &worker] {
        refused(&ask("POST", "/api/v1/runs", Some(bearer)), 403, "'s");
    }
    assert_eq!(
        ask("POST", cancel, Some(&operator)).json()["state"],
        "cancelled"
    );
}

#[test]
fn metrics_are_what_monitoring_reads() {
    let house = House::start(&["--n", "12"]);
    let total = house.get("/api/v1/status").json()["tasks"]["total"].clone();
    let answer = house.get("/metrics");
    assert!(
        answer.kind.starts_with("application/openmetrics-text"),
        "{answer:#?}"
    );
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(&answer.body);
    let parsed = parsed.unwrap_or_else(|error| panic!("{error}\n{}", answer.body));
    let pending = format!("state=\"pending\"}} {total}");
    assert!(
        answer.body.contains(&pending),
        "{pending} in {}",
        answer.body
    );
    for (name, family) in &parsed.families {
        assert!(name.starts_with("queens_"), "{name}");
        assert!(
            !family.help.is_empty() && family.help.ends_with('.'),
            "{name}: {}",
            family.help
        );
    }
    for name in [
        "queens_build",
        "queens_runs",
        "queens_run_tasks",
        "queens_run_progress_ratio",
        "queens_workers",
        "queens_http_requests",
        "queens_store_sync_seconds",
        "queens_data_disk_free_bytes",
        "queens_data_disk_size_bytes",
    ] {
        assert!(
            parsed.families.contains_key(name),
            "{name} in {}",
            answer.body
        );
    }
}

#[test]
fn a_port_that_is_taken_is_told_in_one_line_and_asked_for_in_vain_ends_the_program() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(&binaries().coordinator);
    command
        .args(["--n", "8", "--listen", "127.0.0.1:0", "--http", &address])
        .arg("--data-dir")
        .arg(dir.path());
    let end = Process::run("the coordinator", &mut command);
    assert_eq!(end.code, Some(1), "{end:#?}");
    let mut errors = end.stderr.lines().filter(|line| !line.contains(" INFO "));
    assert!(
        errors
            .next()
            .is_some_and(|line| line.starts_with("error: "))
    );
    assert_eq!(errors.next(), None, "{end:#?}");
    for part in [address.as_str(), "in use", "--no-http"] {
        assert!(end.stderr.contains(part), "'{part}' in {end:#?}");
    }
}
