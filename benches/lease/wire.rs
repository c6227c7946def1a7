//! A transport that costs nothing, so that what is measured is the table.

use peerage::{
    Address, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, ErrorClass, Transport,
    TransportError,
};
use std::fmt;

pub(crate) struct Wire;

/// The connection: a number to look at.
pub(crate) struct Endpoint(pub(crate) u64);

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

impl std::error::Error for Never {}

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

    fn connect(&self, _: &ConnectContext, _: &Anywhere) -> Result<Connected<Endpoint>, Never> {
        Ok(Connected { connection: Endpoint(7), incarnation: None })
    }

    fn disconnect(&self, _: &CloseContext, _: Endpoint, _: CloseReason) -> Closed<Endpoint> {
        Closed::Released
    }
}
