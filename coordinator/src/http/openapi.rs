//! The OpenAPI description of the interface, from the types of its requests and answers.

use std::sync::LazyLock;

use auth::{Access, http_access};
use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use schemars::{
    JsonSchema, Schema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};
use view::json::{History, Run, Status};

use super::{
    api::{
        Cost, CostQuery, Credits, Health, Join, JoinRequest, MapQuery, NamedWorker,
        PriorityRequest, Ready, RecheckRequest, Runs, StatusQuery, SubmitBody, Task, Workers,
        WorkersQuery,
    },
    guard::ErrorAnswer,
    lists::{EventQuery, Events},
    map::{Sheets, TaskMap, Window},
};

/// Answers with the description.
pub(super) async fn openapi() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| description().to_string());
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], TEXT.as_str()).into_response()
}

/// Returns the description of all routes for programs.
pub(super) fn description() -> Value {
    let mut paths = Paths::new();
    paths.add::<Health>("GET", "/healthz", "Liveness probe");
    paths.add::<Ready>("GET", "/readyz", "Readiness probe; 503 if runs are not served");
    paths.metrics("/metrics", "Metrics in the OpenMetrics text format");
    paths.add::<Map<String, Value>>("GET", "/api/v1/openapi.json", "This description");
    paths
        .add::<Status>("GET", "/api/v1/status", "Run status, as printed by queensctl status --json")
        .query::<StatusQuery>();
    paths
        .add::<Workers>("GET", "/api/v1/workers", "Known workers, in pages")
        .query::<WorkersQuery>();
    paths.add::<NamedWorker>(
        "POST",
        "/api/v1/workers/{worker}/drain",
        "Drain a worker: it submits its results and exits",
    );
    paths.add::<NamedWorker>(
        "POST",
        "/api/v1/workers/{worker}/trust",
        "Readmit a worker that returned wrong counts",
    );
    paths.add::<Runs>("GET", "/api/v1/runs", "All runs, in the order in which they are served");
    paths
        .add::<Run>(
            "POST",
            "/api/v1/runs",
            "Start a run, or return the one that a request with the same key started",
        )
        .body::<SubmitBody>();
    paths.add::<Status>("GET", "/api/v1/runs/{run}", "Run status");
    paths.add::<Run>(
        "DELETE",
        "/api/v1/runs/{run}",
        "Delete a finished run and its records permanently",
    );
    paths.add::<Run>("POST", "/api/v1/runs/{run}/pause", "Pause a run");
    paths.add::<Run>("POST", "/api/v1/runs/{run}/resume", "Resume a run");
    paths.add::<Run>("POST", "/api/v1/runs/{run}/cancel", "Cancel a run");
    paths.add::<Run>("POST", "/api/v1/runs/{run}/retry", "Retry parked tasks now");
    paths
        .add::<Run>("POST", "/api/v1/runs/{run}/recheck", "Recheck part or all of a run")
        .body::<RecheckRequest>();
    paths
        .add::<Run>("POST", "/api/v1/runs/{run}/priority", "Set the priority of a run")
        .body::<PriorityRequest>();
    paths
        .add::<TaskMap>("GET", "/api/v1/runs/{run}/map", "Task map of a run, in up to 1,600 cells")
        .query::<MapQuery>();
    paths
        .add::<Sheets>(
            "GET",
            "/api/v1/runs/{run}/grid",
            "Task map of a run, grouped by frame (A and C) or by prefix",
        )
        .query::<Window>();
    paths.add::<Task>("GET", "/api/v1/runs/{run}/tasks/{task}", "Task");
    paths.add::<History>("GET", "/api/v1/runs/{run}/history", "Run history (time series)");
    paths.add::<Credits>(
        "GET",
        "/api/v1/runs/{run}/credits",
        "Contributors of a run, from the records of its journal",
    );
    paths
        .add::<Events>(
            "GET",
            "/api/v1/events",
            "Events of a run, or of all runs and the cluster, oldest first",
        )
        .query::<EventQuery>();
    paths.add::<Cost>("GET", "/api/v1/cost", "Cost of a run before it starts").query::<CostQuery>();
    paths.add::<Join>("POST", "/api/v1/join", "Create a join string").query::<JoinRequest>();
    paths.finish()
}

struct Paths {
    /// Schemas of answers, which have all fields, and of requests, which may leave some out.
    answers: SchemaGenerator,
    requests: SchemaGenerator,
    paths: Map<String, Value>,
}

/// A route in [`Paths`].
struct Operation<'a> {
    requests: &'a mut SchemaGenerator,
    json: &'a mut Value,
}

impl Paths {
    fn new() -> Self {
        let generator = |contract| {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.contract = contract;
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            });
            settings.into_generator()
        };
        Self {
            answers: generator(Contract::Serialize),
            requests: generator(Contract::Deserialize),
            paths: Map::new(),
        }
    }

    /// Adds a route that answers with an `A`.
    fn add<A: JsonSchema>(&mut self, method: &str, path: &str, summary: &str) -> Operation<'_> {
        let answer = self.answers.subschema_for::<A>();
        self.add_as("application/json", &answer, method, path, summary)
    }

    fn metrics(&mut self, path: &str, summary: &str) {
        let text = self.answers.subschema_for::<String>();
        self.add_as("application/openmetrics-text", &text, "GET", path, summary);
    }

    fn add_as(
        &mut self,
        kind: &str,
        answer: &Schema,
        method: &str,
        path: &str,
        summary: &str,
    ) -> Operation<'_> {
        let access = http_access(method, path).expect("a test compares the routes");
        let callers = match access {
            Access::Open => "public",
            Access::Any => "all roles",
            Access::Worker => "workers",
            Access::Viewer => "viewers and operators",
            Access::Operator => "operators",
        };
        let error = self.answers.subschema_for::<ErrorAnswer>();
        let content = |kind: &str, schema| json!({ kind: { "schema": schema } });
        let mut operation = json!({
            "summary": summary,
            "description": format!("Access: {callers}"),
            "parameters": path_parameters(path),
            "responses": {
                "200": { "description": "OK", "content": content(kind, answer) },
                "default": {
                    "description": "Error",
                    "content": content("application/json", &error),
                },
            },
        });
        if access == Access::Open {
            operation["security"] = json!([]);
        }
        let methods = self.paths.entry(path).or_insert_with(|| json!({}));
        let method = method.to_lowercase();
        methods[&method] = operation;
        Operation { requests: &mut self.requests, json: &mut methods[&method] }
    }

    fn finish(mut self) -> Value {
        let mut schemas = self.answers.take_definitions(true);
        schemas.append(&mut self.requests.take_definitions(true));
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "queens coordinator",
                "version": "1",
                "license": {
                    "name": "Apache-2.0 OR MIT",
                    "identifier": "Apache-2.0 OR MIT",
                },
                "description": "Counts are decimal strings, since they exceed 2^53. Every request except \
                                probes needs a token, over TLS or on loopback. Fields may be added.",
            },
            "security": [{ "bearer": [] }],
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {
                    "bearer": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "The bearer of queensctl token create --json, or a join string",
                    },
                },
            },
        })
    }
}

impl Operation<'_> {
    /// Adds the fields of a `Q` as parameters of the query.
    fn query<Q: JsonSchema>(&mut self) {
        let mut query = Q::json_schema(self.requests);
        let fields = query.get_mut("properties").and_then(Value::as_object_mut);
        let parameters = self.json["parameters"].as_array_mut().expect("a list");
        for (name, schema) in fields.into_iter().flatten() {
            let description =
                schema.as_object_mut().and_then(|schema| schema.remove("description"));
            parameters.push(json!({
                "name": name,
                "in": "query",
                "description": description,
                "schema": schema,
            }));
        }
    }

    /// Adds a `B` as the body.
    fn body<B: JsonSchema>(&mut self) {
        let schema = self.requests.subschema_for::<B>();
        let content = json!({ "application/json": { "schema": schema } });
        self.json["requestBody"] = json!({ "required": true, "content": content });
    }
}

/// Describes the parameters of a path such as `/api/v1/runs/{run}`.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let (description, schema) = match name {
            "run" => ("A run: four digits of its id, N=22 or last", json!({ "type": "string" })),
            "worker" => ("The worker's name, or a prefix of its id", json!({ "type": "string" })),
            "task" => ("Number of the task", json!({ "type": "integer", "minimum": 0 })),
            other => unreachable!("a test describes every route, and none has {{{other}}}"),
        };
        json!({
            "name": name,
            "in": "path",
            "required": true,
            "description": description,
            "schema": schema,
        })
    };
    names.map(parameter).collect()
}
