//! Weighing of evidence: counts that differ, and workers whose counts nobody has confirmed.

mod disputes;
mod probation;
