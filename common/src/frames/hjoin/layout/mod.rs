//! Which bits of a key do what, and how keys are taken apart by that.

pub(crate) mod choose;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod order;
pub(crate) mod roles;
pub(crate) mod x3;
