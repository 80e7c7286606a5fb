//! All fuzz targets, selected by name; `tests/tests/fuzz_corpus.rs` lists them too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| match env!("CARGO_BIN_NAME") {
    "certificate" => store::fuzz_targets::certificate(bytes),
    "counts" => store::fuzz_targets::counts(bytes),
    "http_request" => coordinator::http::fuzz_targets::http_request(bytes),
    "join_string" => proto::fuzz_targets::join_string(bytes),
    "journal_line" => store::fuzz_targets::journal_line(bytes),
    "operator_messages" => proto::fuzz_targets::operator_messages(bytes),
    "sled_value" => store::fuzz_targets::sled_value(bytes),
    "small_file" => store::fuzz_targets::small_file(bytes),
    "spool_line" => worker::spool_line(bytes),
    "sync_messages" => proto::fuzz_targets::sync_messages(bytes),
    "token" => proto::fuzz_targets::token(bytes),
    "token_book" => auth::fuzz_token_book(bytes),
    "trust_line" => store::fuzz_targets::trust_line(bytes),
    other => unreachable!("no target {other}"),
});
