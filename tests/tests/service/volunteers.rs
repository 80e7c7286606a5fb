//! Visitors who count without a token (`--volunteers`), honest and lying ones.

use std::fs;

use common::{
    board::Board,
    count::{Counter, CounterConfig, NoProgress, Orientation},
    messages::sealed,
    plan::{Plan, PlanSpec, TaskId},
};
use serde_json::{Value, json};
use store::certify::{Certificate, Contributor};
use tests::{
    cluster::{by_rows, journal},
    process::{Process, queensctl, wait_until},
};

use super::http::{Answer, Fixture, ask};

/// A run of some seconds of one core, in tasks of a millisecond.
const RUN: [&str; 8] = by_rows("16", "1000");
const TOTAL: &str = "14772512";

/// A tab, with its secret.
struct Visitor {
    secret: Option<String>,
    name: &'static str,
    /// Whether certificates name the visitor.
    named: bool,
}

impl Visitor {
    fn new(fixture: &Fixture) -> Self {
        Self::of(fixture, "visitor", false)
    }

    fn of(fixture: &Fixture, name: &'static str, named: bool) -> Self {
        let stranger = Self { secret: None, name, named };
        let secret = stranger.call(fixture, false, "")["secret"].as_str().map(str::to_owned);
        assert!(secret.is_some(), "an identity");
        Self { secret, ..stranger }
    }

    fn call(&self, fixture: &Fixture, wants_package: bool, lines: &str) -> Value {
        let answer = self.ask(fixture, wants_package, lines);
        assert_eq!(answer.code, 200, "{answer:#?}");
        answer.json()
    }

    fn ask(&self, fixture: &Fixture, wants_package: bool, lines: &str) -> Answer {
        let Self { secret, name, named } = self;
        let call = json!({
            "secret": secret, "name": name, "named": named, "threads": 1,
            "memory_bytes_per_thread": 1 << 30, "wants_package": wants_package, "lines": lines
        });
        let url = format!("{}/count/sync", fixture.http);
        ask("POST", &url, &[], Some(&call.to_string()))
    }

    /// Fetches a package, empty if there are no tasks, and tells the coordinator that the tab keeps it.
    fn package(&self, fixture: &Fixture) -> Vec<Value> {
        let package = self.call(fixture, true, "")["package"].as_str().expect("lines").to_owned();
        if !package.is_empty() {
            self.call(fixture, false, &package);
        }
        package.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Submits what `change` makes of the right count of each task, and returns the acknowledgements.
    fn submit(
        &self,
        fixture: &Fixture,
        package: &[Value],
        change: impl Fn(usize, u64) -> u64,
    ) -> Vec<Value> {
        let header = &package[0]["package"];
        let board =
            Board::new(header["n"].as_u64().expect("a number").try_into().unwrap()).unwrap();
        let layout = header["layout"].as_str().expect("a name").parse().unwrap();
        let task_cost = header["task_cost"].as_u64().expect("a number");
        let plan = Plan::new(PlanSpec { board, layout, task_cost }).unwrap();
        let mut counters = Orientation::ALL.map(|orientation| {
            let config = CounterConfig { orientation, ..CounterConfig::best(1 << 26) };
            (orientation.to_string(), Counter::new(&plan, &config).unwrap())
        });
        let mut lines = sealed_line(&json!({ "package": header }));
        for (position, line) in package[1..].iter().enumerate() {
            let task = &line["task"];
            let mut counters = counters.iter_mut();
            let counter = counters.find(|(orientation, _)| task["orientation"] == **orientation);
            let (_, counter) = counter.expect("an orientation");
            let units = plan.task_units(TaskId(task["task"].as_u64().expect("a number")));
            let count = counter.count(units, &NoProgress).unwrap();
            let finished = json!({
                "run": header["run"], "plan": header["plan"], "task": task["task"], "epoch": task["epoch"],
                "granted_unix_ms": task["granted_unix_ms"], "return_unix_ms": header["return_unix_ms"],
                "proof": task["proof"], "count": change(position, count).to_string(), "kernel": "simd128",
                "orientation": task["orientation"], "duration_us": 1
            });
            lines += &sealed_line(&json!({ "finished": finished }));
        }
        self.call(fixture, false, &lines)["acknowledged"].as_array().expect("a list").clone()
    }
}

/// Returns a line without its `crc`, which the coordinator sent with it, and with a new one.
fn sealed_line(object: &Value) -> String {
    let mut text = serde_json::to_vec(object).expect("JSON");
    sealed::seal(&mut text, 0);
    text.push(b'\n');
    String::from_utf8(text).expect("JSON")
}

/// Lets visitors count a run to its end.
fn count_all(fixture: &Fixture, visitors: &[Visitor]) {
    wait_until("the run ends", || {
        for visitor in visitors {
            let package = visitor.package(fixture);
            if !package.is_empty() {
                let answers = visitor.submit(fixture, &package, |_, count| count);
                assert_eq!(accepted(&answers), package.len() - 1, "{answers:?}");
            }
        }
        fixture.get("/api/v1/status").json()["state"] != "running"
    });
}

fn accepted(acknowledged: &[Value]) -> usize {
    acknowledged.iter().filter(|of| of["accepted"] == true).count()
}

#[test]
fn without_the_option_nobody_counts_in_a_browser() {
    let fixture = Fixture::start(&["--n", "12"]);
    let routes = [("GET", "/count"), ("GET", "/count/counter.wasm"), ("POST", "/count/sync")];
    for (method, path) in routes {
        let body = (method == "POST").then_some("{}");
        let answer = ask(method, &format!("{}{path}", fixture.http), &[], body);
        assert_eq!(answer.code, 404, "{answer:#?}");
        assert!(answer.body.contains("start the coordinator with --volunteers"), "{answer:#?}");
    }
}

#[test]
fn a_visitor_submits_its_own_tasks_and_can_do_nothing_else() {
    let fixture = Fixture::start(&[&RUN[..], &["--volunteers"]].concat());
    let visitor = Visitor::new(&fixture);
    let package = visitor.package(&fixture);
    assert_eq!(package.len(), 65, "64 tasks and a header");
    // The tasks are known until they are counted, and again after a restart of the tab or the coordinator.
    let fixture = fixture.restart();

    let other = Visitor::new(&fixture);
    assert_eq!(
        accepted(&other.submit(&fixture, &package, |_, count| count)),
        0,
        "tasks of another visitor"
    );
    let mut forged = package.clone();
    forged[1]["task"]["proof"] = json!("0".repeat(32));
    assert_eq!(
        accepted(&visitor.submit(&fixture, &forged[..2], |_, count| count)),
        0,
        "a forged proof"
    );
    assert_eq!(accepted(&visitor.submit(&fixture, &package, |_, count| count)), 64);
    assert_eq!(accepted(&visitor.submit(&fixture, &package, |_, count| count)), 64, "again");
    let authors = journal(&fixture.cluster.data_dir()).into_iter();
    let authors = authors.filter(|line| line["kind"] == "accepted");
    let authors: Vec<_> = authors.map(|line| line["principal"].to_string()).collect();
    assert_eq!(authors.len(), 64);
    assert!(authors.iter().all(|author| author.ends_with(" token (volunteers)\"")), "{authors:?}");

    let bearer = format!("Bearer {}", visitor.secret.as_deref().expect("a secret"));
    for (method, path) in
        [("GET", "/api/v1/status"), ("GET", "/workers"), ("POST", "/api/v1/runs/last/pause")]
    {
        let url = format!("{}{path}", fixture.http);
        let answer = ask(method, &url, &[("authorization", &bearer)], None);
        assert!([401, 303].contains(&answer.code), "{path}: {answer:#?}");
    }
    let url = format!("{}/count/sync", fixture.http);
    for bad in ["", "{}", r#"{"secret":1}"#] {
        assert!((400..500).contains(&ask("POST", &url, &[], Some(bad)).code), "{bad}");
    }
    let foreign = ask("POST", &url, &[("origin", "http://elsewhere.example")], Some("{}"));
    assert_eq!(foreign.code, 403, "{foreign:#?}");
}

#[test]
fn a_visitor_gets_credit_and_a_certificate_of_its_own_counts() {
    let fixture = Fixture::start(&[&RUN[..], &["--volunteers"]].concat());
    let visitor = Visitor::new(&fixture);
    let package = visitor.package(&fixture);
    assert_eq!(accepted(&visitor.submit(&fixture, &package, |_, count| count)), 64);
    let _worker = fixture.cluster.fast_worker(&fixture.cluster.connection());
    fixture.cluster.queensctl(&["wait", "last"]).ok();

    let credits = fixture.get("/api/v1/runs/last/credits").json()["credits"].clone();
    let credits = credits.as_array().expect("a list");
    let printed = fixture.cluster.queensctl(&["credits", "last", "--json"]).ok().stdout;
    let printed: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(&printed, credits);
    let solutions = |credit: &Value| credit["solutions"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(credits.iter().map(solutions).sum::<u64>().to_string(), TOTAL);
    let shares: f64 = credits.iter().map(|credit| credit["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{credits:#?}");
    // The journal has the same records, and names their authors in the same way.
    let lines = journal(&fixture.cluster.data_dir());
    for credit in credits {
        let own = |line: &&Value| line["principal"] == credit["contributor"];
        let first = lines.iter().filter(|line| line["kind"] == "accepted").filter(own);
        assert_eq!(credit["tasks"], first.count(), "{credit:#?}");
    }
    let visitors = |credit: &&Value| credit["name"] == "visitor";
    let own = credits.iter().find(visitors).expect("the visitor's credit");
    let contributor = own["contributor"].as_str().unwrap();
    assert!(own["tasks"] == 64 && contributor.ends_with(" token (volunteers)"), "{own:#?}");
    let page = fixture.get("/runs/last/credits");
    assert!(page.code == 200 && page.body.contains(contributor), "{page:#?}");
    fixture.cluster.queensctl(&["credits", "last"]).ok().prints(&[contributor]);

    let (data_dir, file) = (fixture.cluster.data_dir(), fixture.cluster.path("own.json"));
    let certify = |contributor: &str| {
        let mut command = queensctl(&["certify", "--contributor", contributor, "--out"]);
        Process::run(command.arg(&file).arg(&data_dir))
    };
    let audit = || Process::run(queensctl(&["audit"]).arg(&file));
    certify("nobody").code(1).logs(&["no counts by 'nobody'"]);
    for named in [contributor, "(volunteers)"] {
        certify(named).ok().prints(&["only those by"]);
        audit().ok().prints(&[
            "merkle     passed: 64 of ",
            "credits    passed: 64 counts",
            "recount    passed",
        ]);
    }
    // One wrong digit, in a count or in the hash of a subtree.
    let counts = fixture.cluster.path("own.json.counts");
    let genuine = fs::read(&counts).unwrap();
    for place in [genuine.len() - 1, genuine.len() / 2] {
        let mut changed = genuine.clone();
        changed[place] ^= 1;
        fs::write(&counts, &changed).unwrap();
        audit().code(3);
    }
}

#[test]
fn the_certificate_names_the_visitors_who_want_it() {
    let options = ["--volunteers", "--referee", "off", "--recheck", "0"];
    let fixture = Fixture::start(&[&by_rows("13", "1")[..], &options].concat());
    let visitors = [("anna", true), ("anna", true), ("b.e-r_t", true), ("carla", false)];
    let visitors = visitors.map(|(name, named)| Visitor::of(&fixture, name, named));
    let another = |visitor: &Visitor| Visitor { secret: visitor.secret.clone(), ..*visitor };
    for other in [
        Visitor { name: "dora", ..another(&visitors[0]) },
        Visitor { named: false, ..another(&visitors[0]) },
        Visitor { named: true, ..another(&visitors[3]) },
    ] {
        let answer = other.call(&fixture, true, "");
        assert!(answer["secret"].is_string() && answer["package"] == "", "{answer}");
    }
    for name in ["", "a b", "<b>anna</b>"] {
        let answer = Visitor { name, ..another(&visitors[0]) }.ask(&fixture, false, "");
        assert_eq!(answer.code, 400, "{answer:#?}");
    }
    count_all(&fixture, &visitors);
    let file = fixture.cluster.path("named.json");
    let data_dir = fixture.cluster.data_dir();
    Process::run(queensctl(&["certify", "--out"]).arg(&file).arg(&data_dir)).ok();

    let text = fs::read_to_string(&file).unwrap();
    let certificate = Certificate::read(&text).unwrap();
    let lines = journal(&data_dir);
    let of = |name: &str| {
        let end = format!(" token (volunteers) name {name}");
        let own = lines.iter().filter(|line| line["principal"].as_str().unwrap().ends_with(&end));
        let counts: Vec<u128> =
            own.map(|line| line["count"].as_str().unwrap().parse().unwrap()).collect();
        assert!(counts.len() > 60, "{name}: {counts:?}");
        let solutions = counts.iter().sum::<u128>().to_string();
        Contributor { name: name.to_owned(), counts: counts.len() as u64, solutions }
    };
    assert_eq!(certificate.contributors, ["anna", "b.e-r_t"].map(of));
    let named: u64 = certificate.contributors.iter().map(|of| of.counts).sum();
    assert!(named < certificate.counts, "carla counted too");
    assert!(!text.contains("carla"), "{text}");

    let audit = |certificate: Certificate| {
        fs::write(&file, certificate.sign(&[7; 32])).unwrap();
        Process::run(queensctl(&["audit"]).arg(&file))
    };
    let anna = format!("named      passed: {} counts by anna, ", of("anna").counts);
    audit(certificate.clone()).ok().prints(&[&anna]);
    let changes: [fn(&mut Certificate); 3] = [
        |of| of.contributors[0].counts += 1,
        |of| of.contributors[1].name = "carla".to_owned(),
        |of| of.contributors.clear(),
    ];
    for change in changes {
        let mut forged = certificate.clone();
        change(&mut forged);
        audit(forged).code(3).prints(&["named      FAILED"]);
    }
}

#[test]
fn visitors_recheck_the_counts_of_other_visitors() {
    let options = ["--volunteers", "--referee", "off", "--recheck", "all"];
    let fixture = Fixture::start(&[&by_rows("14", "1000")[..], &options].concat());
    let visitors = [Visitor::new(&fixture), Visitor::new(&fixture)];
    count_all(&fixture, &visitors);
    let status = fixture.get("/api/v1/status").json();
    assert_eq!(
        (&status["state"], &status["result"]["solutions"]),
        (&json!("complete"), &json!("365596"))
    );
    let lines = journal(&fixture.cluster.data_dir());
    let of = |kind| lines.iter().filter(move |line| line["kind"] == kind).count();
    assert_eq!(of("confirmed"), of("accepted"));
}

#[test]
fn ten_lying_visitors_beside_an_honest_worker_change_nothing() {
    let fixture =
        Fixture::start(&[&RUN[..], &["--volunteers", "--exit-when-done", "--json"]].concat());
    let liars: Vec<_> = (0..10).map(|_| Visitor::new(&fixture)).collect();
    for liar in &liars {
        let package = liar.package(&fixture);
        if package.is_empty() {
            continue;
        }
        liar.submit(&fixture, &package, |position, count| count + u64::from(position % 5 == 0));
    }
    let _worker = fixture.cluster.fast_worker(&fixture.cluster.connection());
    let data_dir = fixture.cluster.data_dir();
    fixture.cluster.check_exact(fixture.coordinator, TOTAL);
    let trust = fs::read_to_string(data_dir.join("trust.jsonl")).expect("liars were barred");
    let lines: Vec<Value> =
        trust.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let barred: Vec<_> =
        lines.iter().filter(|line| line.to_string().contains("\"barred\"")).collect();
    assert!(barred.len() >= 2, "{trust}");
    assert!(barred.iter().all(|line| line.to_string().contains("(volunteers)")), "{trust}");
}
