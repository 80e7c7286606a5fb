#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| proto::foreign::sync_messages(bytes));
