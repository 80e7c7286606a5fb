#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coordinator::store::foreign::journal_line(bytes));
