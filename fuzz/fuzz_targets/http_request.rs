#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coordinator::http::foreign::http_request(bytes));
