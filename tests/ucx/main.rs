//! The `Ucx` transport by itself and between processes, over the system's libucp. What every transport must do is in `tests/spec`.
#![cfg(not(peerage_loom))]

mod crash;
mod exits;
mod held_up;
mod hosts;
mod inbound;
mod killed;
mod messages;
mod processes;
mod resources;
mod support;
