//! Why an operation did not happen: one enum per operation, each saying whether anything was sent.

mod build;
mod grant;
mod incarnation;
mod insert;
mod misuse;
mod name;
mod not_ready;
mod notify;
mod post;
mod ready;
mod region;
mod ticket;
mod update;

pub use build::BuildError;
pub use grant::GrantError;
pub use incarnation::IncarnationError;
pub use insert::{GroupError, GroupMember, InsertError};
pub use misuse::{UsedAfterFork, WouldDeadlock};
pub use name::NameError;
pub use not_ready::{NotReady, Reason};
pub use notify::{NotifyError, Sent};
pub use post::PostError;
pub use ready::{BusyCause, ReadyError, SharedError};
pub use region::{OutOfRegion, RegisterError};
pub use ticket::{NotElected, PublishError};
pub use update::UpdateError;
