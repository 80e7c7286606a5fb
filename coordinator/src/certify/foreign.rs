//! What reads certificates, as functions that take any bytes: for fuzzing.

use super::{Certificate, leaves};

/// A certificate's text: as it is, and where it is an object that lacks a signature, with one.
pub fn certificate(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let again = |text: &str| {
        if let Ok(read) = Certificate::read(text) {
            // Whatever was signed can be looked at without a panic.
            let _ = (read.spec(), read.plan(), read.root());
        }
    };
    again(text);
    if let Ok(read) = serde_json::from_str::<Certificate>(text) {
        let signed = read.sign(&[7; 32]);
        assert!(Certificate::read(&signed).is_ok(), "{signed}");
        again(&signed);
    }
}

/// The file of a certificate's counts.
pub fn counts(bytes: &[u8]) {
    if let Ok(read) = leaves::decode(bytes) {
        assert_eq!(leaves::decode(&leaves::encode(&read)), Ok(read));
    }
}
