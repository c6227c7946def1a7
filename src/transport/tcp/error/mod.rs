//! Why a `Tcp` operation failed.

mod bind;
mod class;
mod misbehaviour;
mod tcp;

pub use bind::BindError;
pub use misbehaviour::Misbehaviour;
pub use tcp::TcpError;
