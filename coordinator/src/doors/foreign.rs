//! What reads the list of tokens, as a function that takes any bytes: for fuzzing.

use super::TokenBook;

/// `tokens.json`.
pub fn token_book(bytes: &[u8]) {
    if let Ok(book) = serde_json::from_slice::<TokenBook>(bytes) {
        let text = serde_json::to_vec(&book).expect("tokens become JSON");
        assert_eq!(serde_json::from_slice::<TokenBook>(&text).ok(), Some(book));
    }
}
