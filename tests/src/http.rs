//! What a browser or a script would ask of a coordinator.

use serde_json::Value;

/// An answer, whatever its status.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// The `Content-Type`.
    pub kind: String,
    /// Everything below the head.
    pub body: String,
    /// All headers, their names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// A header, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }
}

/// Makes a request to `url` with these headers; a body is sent as JSON.
///
/// # Panics
/// If nobody answers.
pub fn ask(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(crate::process::PATIENCE))
        .build()
        .into();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = match body {
        Some(body) => {
            let request = request.header("content-type", "application/json");
            agent.run(request.body(body.to_owned()).expect("a sound request"))
        }
        None => agent.run(request.body(()).expect("a sound request")),
    };
    let mut answer = answer.unwrap_or_else(|error| panic!("{method} {url}: {error}"));
    let text = |value: &ureq::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers: Vec<_> = answer
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect();
    let kind = answer.headers().get("content-type").map(text);
    Answer {
        code: answer.status().as_u16(),
        kind: kind.unwrap_or_default(),
        body: answer.body_mut().read_to_string().expect("text"),
        headers,
    }
}

/// What is wrong with `value` by an OpenAPI schema of `api`; nothing, if nothing is.
pub fn misfits(api: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.trim_start_matches('#');
        let schema = api.pointer(pointer);
        let schema = schema.unwrap_or_else(|| panic!("{reference} leads nowhere"));
        return misfits(api, schema, value, at);
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
        wrong.push(format!("{at}: {kind} where {allowed:?} is described"));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        wrong.push(format!("{at}: {value} is none of {words:?}"));
    }
    if let Some(items) = value.as_array() {
        for (place, item) in items.iter().enumerate() {
            let at = format!("{at}[{place}]");
            wrong.extend(misfits(api, &schema["items"], item, &at));
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
