//! Bindings to libucp and libucs of UCX 1.13 and later. What each function asks of its caller is in UCX's own headers.
//!
//! The bindings are committed, made from the headers of 1.13.1, so that neither libclang nor a C compiler is needed. Statuses
//! and all other enums of C are integers here: a library that is newer than the bindings may return numbers they have no
//! name for.
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

#[cfg(not(feature = "bindgen"))]
mod bindings;
#[cfg(not(feature = "bindgen"))]
pub use bindings::*;

#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
