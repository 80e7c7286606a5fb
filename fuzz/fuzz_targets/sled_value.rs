#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coordinator::store::foreign::sled_value(bytes));
