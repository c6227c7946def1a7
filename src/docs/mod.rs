//! What to know before trusting this crate with a cluster.
//!
//! | you want to know | read |
//! |---|---|
//! | what a word means | [`glossary`] |
//! | what a call promises: progress, atomicity, allocation, threads | [`guarantees`] |
//! | what it does not do | [`limitations`] |
//! | what costs what, and what not to do | [`performance`] |
//! | every default, why it is safe, and what others do | [`policy`] |
//! | why it is made like this | [`why`] |
//! | why it is right | [`internals`] |

pub mod glossary;
pub mod guarantees;
pub mod internals;
pub mod limitations;
pub mod performance;
pub mod policy;
pub mod why;
