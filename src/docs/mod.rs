//! What to know before trusting this crate with a cluster.

pub mod glossary;
pub mod guarantees;
pub mod limitations;
