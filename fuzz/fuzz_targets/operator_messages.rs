#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| proto::foreign::operator_messages(bytes));
