//! Secrets by which a coordinator recognizes workers.
//!
//! A worker must not choose its own identity: otherwise it could count wrongly under another
//! machine's name and get that machine barred. So the coordinator issues each worker a secret, bound
//! to the worker's token. The coordinator stores nothing: half of the secret is a keyed hash of the
//! other half and the token. The key is the store's secret, which survives restarts and moves with
//! the data.

use hmac::{Hmac, KeyInit, Mac};
use proto::connect::WorkerSecret;
use sha2::Sha256;

/// The number of random bytes in a secret; the others are the keyed hash.
const RANDOM_BYTES: usize = 16;

/// Domain separation, so that the store's secret can have other uses.
const PURPOSE: &[u8] = b"worker secret 1";

/// Issuer and verifier of workers' secrets.
#[derive(Clone, Debug)]
pub struct Identities {
    keyed: Hmac<Sha256>,
}

impl Identities {
    pub fn new(store_secret: [u8; 32]) -> Self {
        let mut keyed = Hmac::new_from_slice(&store_secret).expect("HMAC takes keys of any length");
        keyed.update(PURPOSE);
        Self { keyed }
    }

    /// Issues a secret to a worker that authenticated with this token.
    pub fn issue(&self, token: Option<&str>) -> WorkerSecret {
        let random: [u8; RANDOM_BYTES] = rand::random();
        let hash = self.hash(&random, token).finalize().into_bytes();
        let mut secret = [0; WorkerSecret::BYTES];
        let (head, tail) = secret.split_at_mut(RANDOM_BYTES);
        head.copy_from_slice(&random);
        tail.copy_from_slice(&hash[..tail.len()]);
        WorkerSecret::new(secret)
    }

    /// Returns whether this store issued the secret to a worker with this token.
    pub fn is_issued(&self, secret: &WorkerSecret, token: Option<&str>) -> bool {
        let (random, hash) = secret.as_bytes().split_at(RANDOM_BYTES);
        self.hash(random, token).verify_truncated_left(hash).is_ok()
    }

    fn hash(&self, random: &[u8], token: Option<&str>) -> Hmac<Sha256> {
        let mut keyed = self.keyed.clone();
        keyed.update(random);
        keyed.update(&[u8::from(token.is_some())]);
        keyed.update(token.unwrap_or_default().as_bytes());
        keyed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_valid_with_its_store_and_token_only() {
        let identities = Identities::new([7; 32]);
        let secret = identities.issue(Some("lab/0000000a"));
        // After a restart, or a failover with the same store.
        assert!(Identities::new([7; 32]).is_issued(&secret, Some("lab/0000000a")));
        for token in [None, Some(""), Some("lab/0000000b"), Some("lab/0000000a ")] {
            assert!(!identities.is_issued(&secret, token), "{token:?}");
        }
        assert!(!Identities::new([8; 32]).is_issued(&secret, Some("lab/0000000a")));
        let bare = identities.issue(None);
        assert!(identities.is_issued(&bare, None) && !identities.is_issued(&bare, Some("")));
    }

    #[test]
    fn secrets_are_unique_and_cannot_be_forged() {
        let identities = Identities::new([7; 32]);
        let secret = identities.issue(None);
        assert_ne!(secret.worker(), identities.issue(None).worker());
        for bit in 0..8 * WorkerSecret::BYTES {
            let mut other = *secret.as_bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!identities.is_issued(&WorkerSecret::new(other), None), "bit {bit}");
        }
        assert!(!format!("{identities:?} {secret:?}").contains(&secret.expose()[..16]));
    }

    #[test]
    fn the_hash_is_frozen() {
        let hash = Identities::new([7; 32]).hash(&[1; RANDOM_BYTES], Some("lab/0000000a"));
        let hash = hash.finalize().into_bytes();
        assert_eq!(common::messages::hex::encode(&hash[..16]), "343278f115e565164ee9fdc55c06133a");
    }
}
