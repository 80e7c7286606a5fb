#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coordinator::doors::foreign::token_book(bytes));
