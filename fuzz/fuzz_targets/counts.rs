#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coordinator::certify::foreign::counts(bytes));
