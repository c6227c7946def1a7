//! A transport that costs nothing but what a benchmark has it do while it connects, so that what is measured is the table.

use peerage::{
    Address, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, ErrorClass, Transport,
    TransportError,
};
use std::error::Error;
use std::fmt;
use std::hint::black_box;

pub(crate) struct Wire(Box<dyn Fn(&ConnectContext) + Send + Sync>);

impl Wire {
    /// `connecting` is run by every connect.
    pub(crate) fn new(connecting: impl Fn(&ConnectContext) + Send + Sync + 'static) -> Self {
        Wire(Box::new(connecting))
    }
}

/// The connection: a number to look at.
#[derive(Clone)]
pub(crate) struct Endpoint(pub(crate) u64);

#[allow(dead_code)] // each benchmark uses what it measures
impl Endpoint {
    /// The use of the connection: one load that the compiler cannot leave out.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        black_box(self.0);
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Anywhere;

impl fmt::Display for Anywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anywhere")
    }
}

impl Address for Anywhere {}

#[derive(Debug)]
pub(crate) enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Error for Never {}

impl TransportError for Never {
    fn class(&self) -> ErrorClass {
        match *self {}
    }
}

impl Transport for Wire {
    type Address = Anywhere;
    type Connection = Endpoint;
    type Error = Never;

    fn capabilities(&self) -> Capabilities {
        Capabilities::NATIVE_CLOSE
    }

    fn connect(&self, context: &ConnectContext, _: &Anywhere) -> Result<Connected<Endpoint>, Never> {
        (self.0)(context);
        Ok(Connected { connection: Endpoint(7), incarnation: None })
    }

    fn disconnect(&self, _: &CloseContext, _: Endpoint, _: CloseReason) -> Closed<Endpoint> {
        Closed::Released
    }
}
