//! The worker: pulls tasks, counts them on all local cores, and reports partial counts.
