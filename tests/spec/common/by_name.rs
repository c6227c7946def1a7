//! `Nixl`, found by name. What its processes publish is another at each start, and the specification's come back where they were:
//! so here an address is a name, and what its process has published last is looked up at each connect, as a program does that keeps
//! addresses in a registry.

use super::Fleet;
use super::elsewhere::elsewhere;
use peerage::transport::nixl::{Nixl, NixlAddress, NixlBuildError, NixlConnection, NixlError, NixlLibraryError};
use peerage::transport::{
    Address, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Liveness,
    ProbeContext, Transport,
};
use peerage::{GrantBook, Inbox, Incarnation, PeerName, Post, Region, TransferId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Runs a test in a process of its own, if NIXL is here.
pub(crate) fn alone_with_nixl(test: &str, body: fn()) {
    let (_, test) = test.split_once("::").expect("the crate comes first");
    if elsewhere(test) {
        return;
    }
    match Nixl::builder().build().map(drop) {
        Ok(()) => body(),
        Err(NixlBuildError::Library(error @ NixlLibraryError::NotFound { .. })) => println!("SKIPPED: {test}: {error}"),
        Err(error) => panic!("{error:?}"),
    }
}

type Registry = Arc<Mutex<HashMap<String, NixlAddress>>>;

/// Over NIXL's own package.
pub(crate) struct OverNixl {
    registry: Registry,
    remotes: Vec<(String, Option<ByName>)>,
}

impl OverNixl {
    fn at(&mut self, name: &str) -> &mut Option<ByName> {
        &mut self.remotes.iter_mut().find(|(of, _)| of == name).expect("a remote of this fleet").1
    }
}

impl Fleet for OverNixl {
    type Transport = ByName;

    fn of(remotes: &[&str]) -> Self {
        let registry = Registry::default();
        let remotes = remotes.iter().map(|name| (name.to_string(), Some(ByName::start(name, &registry)))).collect();
        OverNixl { registry, remotes }
    }

    fn here(&self) -> ByName {
        ByName::start("here", &self.registry)
    }

    fn remote(&self, name: &str) -> &ByName {
        let remote = self.remotes.iter().find(|(of, _)| of == name).expect("a remote of this fleet");
        remote.1.as_ref().expect("it lives")
    }

    fn address(&self, name: &str) -> NameOf {
        NameOf(name.into())
    }

    fn stop(&mut self, name: &str) {
        *self.at(name) = None;
    }

    fn start(&mut self, name: &str) {
        let started = ByName::start(name, &self.registry);
        *self.at(name) = Some(started);
    }
}

pub(crate) struct ByName {
    nixl: Nixl,
    registry: Registry,
}

impl ByName {
    fn start(name: &str, registry: &Registry) -> Self {
        let nixl = Nixl::named(name.try_into().unwrap()).expect("NIXL makes agents");
        let by_name = ByName { nixl, registry: registry.clone() };
        by_name.publish();
        by_name
    }

    fn publish(&self) {
        let address = self.nixl.local_address().expect("NIXL gives metadata");
        self.registry.lock().unwrap().insert(address.name().to_string(), address);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameOf(String);

impl Address for NameOf {}

impl fmt::Display for NameOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Transport for ByName {
    type Address = NameOf;
    type Connection = NixlConnection;
    type Error = NixlError;

    fn local_name(&self) -> Option<&PeerName> {
        self.nixl.local_name()
    }

    fn new_incarnation(&self) -> Option<Incarnation> {
        let new = self.nixl.new_incarnation();
        self.publish();
        new
    }

    fn capabilities(&self) -> Capabilities {
        self.nixl.capabilities()
    }

    fn connect(&self, cx: &ConnectContext, to: &NameOf) -> Result<Connected<NixlConnection>, NixlError> {
        let published = self.registry.lock().unwrap().get(&to.0).cloned();
        self.nixl.connect(cx, &published.expect("every process of a fleet publishes"))
    }

    fn disconnect(&self, cx: &CloseContext, connection: NixlConnection, why: CloseReason) -> Closed<NixlConnection> {
        self.nixl.disconnect(cx, connection, why)
    }

    fn probe(&self, cx: &ProbeContext, connection: &NixlConnection) -> Liveness {
        self.nixl.probe(cx, connection)
    }

    fn end(&self, deadline: Instant) {
        self.nixl.end(deadline);
    }
}

impl DataPlane for ByName {
    fn max_notification(&self) -> usize {
        self.nixl.max_notification()
    }

    fn notify(&self, connection: &NixlConnection, message: &[u8]) -> Result<(), NixlError> {
        self.nixl.notify(connection, message)
    }

    fn inbox(&self) -> &Inbox {
        self.nixl.inbox()
    }

    fn register(&self, region: &Region) -> Result<(), NixlError> {
        self.nixl.register(region)
    }

    fn deregister(&self, region: &Region) -> Result<(), NixlError> {
        self.nixl.deregister(region)
    }

    fn post(&self, connection: &NixlConnection, post: Post) -> Result<(), NixlError> {
        self.nixl.post(connection, post)
    }

    fn cancel(&self, connection: &NixlConnection, transfer: TransferId) {
        self.nixl.cancel(connection, transfer);
    }

    fn grants(&self) -> &GrantBook {
        self.nixl.grants()
    }
}
