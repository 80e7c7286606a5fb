#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| worker::foreign::spool_line(bytes));
