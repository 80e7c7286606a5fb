//! Proofs of leases: a worker speaks only about what it was leased.
//!
//! A proof is a keyed hash of the lease, its worker, and what only the coordinator knows or decided: the
//! purpose, which does not reveal itself this way, and the orientation. The scheduler stores no proofs. A
//! lease that a restart or the loss of sled made it forget is believed by its proof alone.

use std::fmt;

use common::{
    count::Orientation,
    messages::run::{LeaseKey, Proof, TaskRef, WorkerId},
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::run::Purpose;

/// Domain separation, so that the store's key can have other uses.
const DOMAIN: &[u8] = b"lease 1";

/// Maker and verifier of proofs.
#[derive(Clone)]
pub(super) struct Proofs {
    keyed: Hmac<Sha256>,
}

impl fmt::Debug for Proofs {
    /// Omits the key, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proofs")
    }
}

impl Proofs {
    pub(super) fn new(key: [u8; 32]) -> Self {
        let mut keyed = Hmac::new_from_slice(&key).expect("HMAC takes keys of any length");
        keyed.update(DOMAIN);
        Self { keyed }
    }

    /// Returns the lease with its proof.
    pub(super) fn prove(
        &self,
        lease: LeaseKey,
        worker: WorkerId,
        purpose: Purpose,
        orientation: Orientation,
    ) -> LeaseKey {
        let hash = self.hash(&lease, worker, purpose, orientation).finalize().into_bytes();
        let half = *hash.first_chunk().expect("a hash has 32 bytes");
        LeaseKey { proof: Proof(u128::from_be_bytes(half)), ..lease }
    }

    /// Returns the purpose and orientation of a lease that was granted to a worker; `None` if it was not.
    pub(super) fn granted(
        &self,
        lease: &LeaseKey,
        worker: WorkerId,
    ) -> Option<(Purpose, Orientation)> {
        let proof = lease.proof.0.to_be_bytes();
        let purposes = [Purpose::Count, Purpose::Recheck, Purpose::Recount];
        let orientations = [Orientation::Upright, Orientation::Rotated];
        let all = purposes.into_iter().flat_map(|purpose| orientations.map(|of| (purpose, of)));
        all.into_iter().find(|&(purpose, orientation)| {
            let hash = self.hash(lease, worker, purpose, orientation);
            hash.verify_truncated_left(&proof).is_ok()
        })
    }

    fn hash(
        &self,
        lease: &LeaseKey,
        worker: WorkerId,
        purpose: Purpose,
        orientation: Orientation,
    ) -> Hmac<Sha256> {
        let LeaseKey { task: TaskRef { run, plan, task }, epoch, .. } = *lease;
        let LeaseKey { granted_unix_ms, return_unix_ms, .. } = *lease;
        let mut keyed = self.keyed.clone();
        keyed.update(plan.as_bytes());
        for number in [run.0, task.0, epoch.0, granted_unix_ms, return_unix_ms] {
            keyed.update(&number.to_be_bytes());
        }
        keyed.update(&worker.0.to_be_bytes());
        keyed.update(&[purpose as u8, orientation as u8]);
        keyed
    }
}

#[cfg(test)]
mod tests {
    use common::{
        messages::run::{Epoch, RunId},
        plan::{PlanHash, TaskId},
    };

    use super::*;

    #[test]
    fn a_proof_is_valid_for_its_lease_worker_and_coordinator_only() {
        let plan: PlanHash = "0123456789abcdef".repeat(4).parse().unwrap();
        let task = TaskRef { run: RunId(1), plan, task: TaskId(2) };
        let epoch = Epoch(3);
        let bare = LeaseKey {
            task,
            epoch,
            granted_unix_ms: 4,
            return_unix_ms: 0,
            proof: Proof::default(),
        };
        let (worker, proofs) = (WorkerId(5), Proofs::new([7; 32]));
        for purpose in [Purpose::Count, Purpose::Recheck, Purpose::Recount] {
            for orientation in [Orientation::Upright, Orientation::Rotated] {
                let lease = proofs.prove(bare, worker, purpose, orientation);
                assert_eq!(proofs.granted(&lease, worker), Some((purpose, orientation)));
                assert_eq!(proofs.granted(&lease, WorkerId(6)), None);
                assert_eq!(Proofs::new([8; 32]).granted(&lease, worker), None);
                for other in [
                    LeaseKey { task: TaskRef { run: RunId(2), ..task }, ..lease },
                    LeaseKey { task: TaskRef { task: TaskId(3), ..task }, ..lease },
                    LeaseKey { epoch: Epoch(4), ..lease },
                    LeaseKey { granted_unix_ms: 5, ..lease },
                    LeaseKey { return_unix_ms: 6, ..lease },
                    LeaseKey { proof: Proof(lease.proof.0 ^ 1), ..lease },
                    bare,
                ] {
                    assert_eq!(proofs.granted(&other, worker), None, "{other:?}");
                }
            }
        }
        assert_eq!(format!("{proofs:?}"), "Proofs");
    }
}
