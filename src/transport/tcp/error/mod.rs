//! Why a `Tcp` operation failed.

mod bind;
mod class;
mod misbehaviour;
mod tcp;

pub use bind::BindError;
#[cfg(feature = "ucx")]
pub(in crate::transport) use class::{what_is_lacking, what_the_resolver_lacked};
pub use misbehaviour::Misbehaviour;
pub use tcp::TcpError;
