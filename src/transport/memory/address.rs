//! Where a node is: its name in the fabric.

use crate::name::Incarnation;
use crate::transport::Address;
use std::fmt;
use std::sync::Arc;

/// The name of a node of the [`Fabric`](super::Fabric), and, if it matters, which life of it is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemoryAddress {
    /// The node's name. One that does not exist is refused at connect.
    pub node: Arc<str>,
    /// The life of the node this address was published by, if it names one.
    pub incarnation: Option<Incarnation>,
    /// The start of the engine it is a rank of, if it matters.
    pub engine: Option<Incarnation>,
}

impl MemoryAddress {
    /// The node called `node`, in any of its lives.
    pub fn new(node: &str) -> Self {
        MemoryAddress { node: node.into(), incarnation: None, engine: None }
    }

    /// The same node, but only in this life.
    pub fn with_incarnation(self, incarnation: Incarnation) -> Self {
        MemoryAddress { incarnation: Some(incarnation), ..self }
    }

    /// As a rank of this start of an engine.
    pub fn with_engine(self, engine: Incarnation) -> Self {
        MemoryAddress { engine: Some(engine), ..self }
    }
}

impl Address for MemoryAddress {
    fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }

    fn engine(&self) -> Option<Incarnation> {
        self.engine
    }
}

impl fmt::Display for MemoryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory:{}", self.node)?;
        self.incarnation.map_or(Ok(()), |incarnation| write!(f, "@{incarnation}"))?;
        self.engine.map_or(Ok(()), |engine| write!(f, "/{engine}"))
    }
}
