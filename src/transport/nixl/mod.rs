//! NIXL: NVIDIA's library for moving KV cache, over the `libnixl_capi.so` of its Python package. Needs the feature `nixl`, and the
//! package when the process runs.
//!
//! | file | idea |
//! |---|---|
//! | `library` | where NIXL is, and loading it |
//! | `capi` | its C API, as a table of functions |
//! | `native` | an agent in safe words, memory, notifications |
//! | `remote` | one peer that is loaded, prepared lists |
//! | `request` | one transfer, to the proof that it has ended |
//!
//! # What it does not do
//! **NIXL trusts its peers.** Metadata is believed as it is, and whoever has ours may write to what is registered.
//!
//! Where Debian's `libucx` is installed beside NIXL's own UCX, set `UCX_MODULES=^ib`: without it the process may crash at its end,
//! in libnl.

#![expect(dead_code, reason = "the transport on top is not here yet")]

mod capi;
mod library;
mod native;
mod remote;
mod request;

#[cfg(all(test, not(peerage_loom)))]
mod tests;

pub use capi::Status;
pub use library::{Looked, NixlLibraryError};
