//! A table, its sequential model, and sequences of operations on both. Shared by `tests/model.rs` and `fuzz`.

pub(crate) mod op;
pub(crate) mod sequential;
pub(crate) mod world;
