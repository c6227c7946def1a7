//! Why peers were not inserted, alone or as a group.

use super::{NameError, UsedAfterFork};
use crate::name::PeerName;

/// Why a peer was not inserted. The table is unchanged.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is our own.
    #[error("\"{name}\" is this process's own name; give every process its own")]
    OwnName {
        /// The name.
        name: PeerName,
    },
    /// The name is live with another address. Replace that by [`Peer::update`](crate::Peer::update); or, for a peer that has
    /// nothing to do with it, remove the old one: its name may be inserted again as soon as the removal has begun.
    #[error("peer \"{name}\" is live at {live}, not at {given}; update it, or remove it and insert it again")]
    NameConflict {
        /// The name.
        name: PeerName,
        /// The address the table has.
        live: String,
        /// The address that was given.
        given: String,
    },
    /// The table holds as many peers as it may.
    #[error("peer \"{name}\" not inserted: the table holds its {limit} peers; remove some or raise `max_peers`")]
    TooManyPeers {
        /// The name.
        name: PeerName,
        /// The table's limit.
        limit: usize,
    },
    /// The table is shut down, for ever. Insert it into another one.
    #[error("peer \"{name}\" not inserted: the table is shut down")]
    ShutDown {
        /// The name.
        name: PeerName,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("peer \"{name}\" not inserted: {}", UsedAfterFork)]
    UsedAfterFork {
        /// The name.
        name: PeerName,
    },
}

impl From<std::convert::Infallible> for InsertError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// Why a group was not inserted. The table is unchanged.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The group's name is not one, or a member can't be added.
    #[error(transparent)]
    Insert(#[from] InsertError),
    /// The members' addresses were published by different starts of an engine: some of them are out of date. Read them again.
    #[error("the members of \"{group}\" are not of one start of an engine: {}", list(members))]
    Mixed {
        /// The group.
        group: PeerName,
        /// All members.
        members: Vec<GroupMember>,
    },
}

/// A member of a group that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Its name.
    pub name: PeerName,
    /// The start of the engine that its address names.
    pub engine: Option<crate::Incarnation>,
    /// Its address.
    pub address: String,
}

fn list(members: &[GroupMember]) -> String {
    let line = |GroupMember { name, engine, address }: &GroupMember| match engine {
        Some(engine) => format!("{name} → {engine} → {address}"),
        None => format!("{name} → none → {address}"),
    };
    members.iter().map(line).collect::<Vec<_>>().join(", ")
}
