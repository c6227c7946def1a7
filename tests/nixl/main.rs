//! The `Nixl` transport by itself and between processes, over NIXL's own package. What every transport must do is in `tests/spec`.
//!
//! Without the package, each says that it is skipped.
#![cfg(not(peerage_loom))]

mod agents;
mod bypassed;
mod crash;
mod exits;
mod helping;
mod inbound;
mod messages;
mod pages;
mod processes;
mod reported;
mod resources;
mod standing;
mod support;
