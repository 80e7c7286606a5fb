//! Certificates: the signed counts of a complete run.
//!
//! They can be checked without a coordinator, and by later versions. [`certify()`] makes a certificate from
//! a data directory after verifying every line; [`audit()`] checks the signature, the tree over the counts
//! and their sum, and recounts some tasks.

mod audit;
mod certificate;
pub(crate) mod leaves;
mod make;

pub use audit::{AuditError, AuditOptions, Part, audit};
pub use certificate::{
    BadCertificate, Certificate, Check, Contributor, Levels, Recounts, Share, public_key,
};
pub use leaves::BadCounts;
pub use make::{Certified, CertifyError, certify};
