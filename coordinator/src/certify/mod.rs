//! Certificates: what a whole run counted, signed, so that anybody can check it without a coordinator,
//! and long after the program has changed.
//!
//! [`certify()`] makes one from a data directory, whose every line it checks before; [`audit()`] checks
//! the signature, the tree over the counts and their sum, and counts some of them again.

mod audit;
mod certificate;
#[doc(hidden)]
pub mod foreign;
mod leaves;
mod make;

pub use audit::{AuditError, AuditOptions, Finding, Outcome, Part, audit};
pub use certificate::{BadCertificate, Certificate, Check, Share, public_key};
pub use leaves::BadCounts;
pub use make::{Certified, CertifyError, certify};
