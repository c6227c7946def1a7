//! A transport whose connections are a piece of heap with known contents, so that one used after its end is noticed.

use peerage::{
    Address, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, ErrorClass, Generation,
    PeerName, Transport, TransportError,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Connects at once. Its table may have two connections of a name, or one, after `overlap`.
pub(crate) struct Wire {
    pub(crate) overlap: bool,
    pub(crate) open: Arc<AtomicI64>,
}

/// Where the peer of that name is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct At(pub(crate) String);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}", self.0)
    }
}

impl Address for At {}

/// Whose it is, twice.
pub(crate) struct Connection(Box<(PeerName, Generation, String)>);

impl Connection {
    /// What a send does: reads all of it.
    pub(crate) fn used_by(&self, name: &str, generation: Generation) {
        let (its_name, its_generation, text) = &*self.0;
        assert_eq!((its_name.as_str(), *its_generation, text.as_str()), (name, generation, name));
    }
}

/// It never fails.
#[derive(Debug)]
pub(crate) enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

impl TransportError for Never {
    fn class(&self) -> ErrorClass {
        match *self {}
    }
}

impl Transport for Wire {
    type Address = At;
    type Connection = Connection;
    type Error = Never;

    fn capabilities(&self) -> Capabilities {
        let both = Capabilities::NATIVE_CLOSE.with(Capabilities::CLOSE_QUIESCES);
        if self.overlap { both.with(Capabilities::OVERLAP) } else { both }
    }

    fn connect(&self, cx: &ConnectContext, to: &At) -> Result<Connected<Connection>, Never> {
        self.open.fetch_add(1, Ordering::Relaxed);
        assert_eq!(cx.name().as_str(), to.0, "an address of another peer");
        let connection = Connection(Box::new((cx.name().clone(), cx.generation(), to.0.clone())));
        Ok(Connected { connection, incarnation: None })
    }

    fn disconnect(&self, cx: &CloseContext, connection: Connection, _: CloseReason) -> Closed<Connection> {
        connection.used_by(cx.name.as_str(), cx.generation);
        self.open.fetch_sub(1, Ordering::Relaxed);
        Closed::Released
    }
}
