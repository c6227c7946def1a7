//! NIXL: NVIDIA's library for moving KV cache, over the `libnixl_capi.so` of its Python package. Needs the feature `nixl`, and the
//! package when the process runs.
//!
//! | file | idea |
//! |---|---|
//! | `library` | where NIXL is, and loading it |
//! | `capi` | its C API, as a table of functions |
//! | `native` | an agent in safe words, memory, notifications |
//! | `remote` | one peer that is loaded |
//! | `request` | one transfer, to the proof that it has ended |
//! | `address` | what a process publishes |
//! | `message` | what is sent |
//! | `mailbox` | what a thread is told |
//! | `thread` | when a thread looks, and when it sleeps |
//! | `dialers` | the agents that dial |
//! | `dialing` | the thread of each: what is answered, transfers, beginnings and ends |
//! | `serving` | the thread of the agent that serves: who is let in, what they say |
//! | `link` | one connection that we opened, as its senders see it |
//! | `moving` | its transfers |
//! | `helping` | who waits for one moves it on |
//! | `long_calls` | what who waits must not wait for |
//! | `senders` | when the thread leaves NIXL to them |
//! | `standing` | permissions that last |
//! | `inbound` | one connection that somebody opened to us |
//! | `callers` | how those are answered |
//! | `shared` | what the threads and callers share |
//! | `counts` | what became of those who connected |
//! | `registry` | the inbound connections, for those who ask |
//! | `builder` | settings |
//! | `error` | what may go wrong, and whose fault it is |
//!
//! # Two agents
//! NIXL has one place for a name in an agent. A process that connects to a peer, and is connected to by it, would have both in one
//! place, where a new connection of one direction ends the other's. So a transport has two agents: **the server** bears the
//! process's name, is what the address names, and has the memory that is lent; it loads who calls, to answer. **The caller** has a
//! name of its own for each boot, loads who the table connects, notifies and transfers; nobody gets a key to what is registered
//! there. A region is registered with all. Connects of others to us do not hold up our senders, as the agents have a lock each.
//! There may be [several callers](NixlBuilder::agents), with some of the peers each.
//!
//! # Who may call what
//! Agents are always made in NIXL's mode for several threads. **Senders** notify, and begin transfers under a permission that
//! lasts, on their own threads. **Who waits** for a transfer, in [`Transfer::wait`](crate::Transfer::wait), polls it, and completes
//! it, unless a call is under way that may be long, or others wait for their turn. **A connecting thread** loads the peer and says
//! hello, **a closing thread** removes it; `register` and `deregister` run on their caller's. **Everything else is done by one
//! thread for each agent**, `peerage-nixl`: it polls what nobody waits for in that way. Loading a peer takes the agent's
//! exclusive lock for as long as NIXL connects: others' sends wait for it inside NIXL, see [limitations](crate::docs::limitations).
//!
//! # How a connection ends
//! In this order, by construction: requests (dropped where they are proven over), then the peer, by who has its last
//! reference, when no lease and no transfer is left. A peer that NIXL has removed by itself is removed. A transfer that does not
//! end keeps its connection: NIXL's release and removal do not stop it, so this transport does not say
//! [`CLOSE_QUIESCES`](crate::Capabilities::CLOSE_QUIESCES).
//!
//! # How pages move
//! Whoever wants to read or write one asks its owner, who holds it under its grant and answers where it is. Then NIXL moves it by
//! itself. The permission lasts while it is used: further parts of the page are moved without a word, on the thread that wants it.
//! It goes back within 5 ms when nothing has used it; when its owner revokes the grant, at once, or after some 20 ms while senders
//! stream. See `standing`, `moving` and `inbound` for when pages are free again.
//!
//! # What it does not do
//! **NIXL trusts its peers.** Nobody is authenticated, metadata is believed as it is, and whoever has ours may write to what is
//! registered with the server, lent or not.
//!
//! A process that is stopped, or that the network swallows, raises no error: [probes](crate::Heartbeat) find it. One that is
//! killed is noticed by the next call to it, or within moments while it owes an answer.
//!
//! # What to set
//! UCX writes its log to the standard output, a line for each dial that fails: where that output is yours, set
//! `UCX_LOG_FILE=stderr`. NIXL's own log goes to the standard error.
//!
//! Where Debian's `libucx` is installed beside NIXL's own UCX, set `UCX_MODULES=^ib`: without it the process may crash at its end,
//! in libnl.

mod address;
mod builder;
mod callers;
mod capi;
mod counts;
mod dialers;
mod dialing;
mod error;
mod helping;
mod inbound;
mod library;
mod link;
mod long_calls;
mod mailbox;
mod message;
mod moving;
mod native;
mod registry;
mod remote;
mod request;
mod senders;
mod serving;
mod shared;
mod standing;
mod thread;

#[cfg(all(test, not(peerage_loom)))]
mod tests;

pub use address::{NixlAddress, NixlAddressError, OfferedMemory};
pub use builder::NixlBuilder;
pub use capi::Status;
pub use counts::InboundCounts;
pub use error::{NixlBuildError, NixlError};
pub use library::{Looked, NixlLibraryError};
pub use link::NixlConnection;
pub use message::{Farewell, Verdict};
pub use registry::InboundKey;

use crate::builder::FOREVER;
use crate::fork::Own;
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::Region;
use crate::sync::lock;
use crate::transfer::{Post, TransferId};
use crate::transport::exit;
use crate::transport::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Liveness, ProbeContext,
    Transport,
};
use dialers::Dialer;
use dialing::LINGER;
use link::{Dial, Link, remove};
use mailbox::{Ending, OfOurs, OfTheirs};
use message::{Answer, Head, Hello, Kind};
use native::Agent;
use remote::{NotLoaded, Remote};
use shared::{Registered, Shared};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a connecting thread looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(25);

/// A transport over NIXL: is found by the address it publishes, and connects to those of others.
///
/// It is served by two threads of its own, `peerage-nixl`, and one more for each [agent](NixlBuilder::agents) beyond the first.
/// Dropping it says goodbye to everybody and waits for the threads, but for one that it runs on.
///
/// A table keeps it for a moment after its own drop: [`shutdown`](crate::PeerTable::shutdown) the table first, or a process that
/// exits at once says nothing.
///
/// ```no_run
/// use peerage::transport::nixl::{Nixl, NixlAddress};
/// use peerage::{Heartbeat, PeerTable, Region};
/// use std::time::{Duration, Instant};
///
/// # fn publish(_: &[u8]) {}
/// # fn published() -> Vec<u8> { Vec::new() }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = PeerTable::builder(Nixl::named("decode-0".try_into()?)?).heartbeat(Heartbeat::default()).build()?;
/// let pages = Region::zeroed(64 << 20);
/// table.register(&pages)?;
/// publish(&table.transport().local_address()?.to_bytes());      // where peers look
///
/// let address = NixlAddress::from_bytes(&published())?;         // of a peer
/// let peer = table.insert(address.name().clone(), address)?;
/// peer.wait_ready(Instant::now() + Duration::from_secs(10))?;
/// peer.lease()?.notify(b"pages ready")?;
///
/// let restarted = NixlAddress::from_bytes(&published())?;
/// peer.update(restarted)?;                                      // ends the old generation, then connects
/// # Ok(()) }
/// ```
///
/// In a child of `fork` it is the parent's: what may fail answers [`NixlError::UsedAfterFork`], lists are empty, and dropping it
/// or a connection of it does not call NIXL.
pub struct Nixl {
    shared: Arc<Shared>,
    threads: Own<Vec<JoinHandle<()>>>,
}

impl Nixl {
    /// With a name, and defaults for everything else.
    ///
    /// # Errors
    /// Those of [`NixlBuilder::build`].
    pub fn named(name: PeerName) -> Result<Self, NixlBuildError> {
        Self::builder().name(name).build()
    }

    /// Settings, each with a default.
    pub fn builder() -> NixlBuilder {
        NixlBuilder::default()
    }

    /// The address for peers to connect to, with the keys to all memory that is registered now. Made once, and anew when
    /// registrations or the boot id have changed since. May block, for as long as NIXL's lock is taken.
    ///
    /// # Errors
    /// [`NixlError::NoMetadata`]: NIXL gave none. [`NixlError::UsedAfterFork`].
    pub fn local_address(&self) -> Result<NixlAddress, NixlError> {
        self.shared.check_process()?;
        self.shared.publish().map_err(NixlError::NoMetadata)
    }

    /// Its boot id: random for each `Nixl`, and for each [new incarnation](crate::PeerTable::new_incarnation).
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation()
    }

    /// The file that NIXL was loaded from.
    pub fn library(&self) -> &Path {
        self.shared.library.path()
    }

    /// The connections that others have opened to us, and for how long they have been open. Does not wait for any of them.
    pub fn inbound(&self) -> Vec<(InboundKey, Duration)> {
        if self.shared.process.is_this() { self.shared.registry.list() } else { Vec::new() }
    }

    /// What became of those who connected.
    pub fn inbound_counts(&self) -> InboundCounts {
        (&self.shared.counts).into()
    }

    /// How many transfers NIXL has not let go of, or has in a way that proves nothing: each keeps its memory registered for ever.
    pub fn leaked_transfers(&self) -> usize {
        if !self.shared.process.is_this() {
            return 0;
        }
        self.shared.dialers.0.iter().map(|dialer| dialer.leaked()).sum()
    }

    /// Ends one inbound connection, and tells its dialer; `false` if there is none of this key. Does not wait.
    pub fn drop_inbound(&self, key: &InboundKey) -> bool {
        let is_open = self.has_inbound(key);
        if is_open {
            self.end_inbound(Some(key.clone()), Farewell::Removed);
        }
        is_open
    }

    /// The same without a word, as a crash of this process would; the dialer is told when it sends something. For fault injection.
    pub fn cut_inbound(&self, key: &InboundKey) -> bool {
        let is_open = self.has_inbound(key);
        if is_open {
            self.shared.mailbox.put(OfTheirs::Cut(Some(key.clone())));
        }
        is_open
    }

    fn has_inbound(&self, key: &InboundKey) -> bool {
        self.shared.process.is_this() && self.shared.registry.has(key)
    }

    fn end_inbound(&self, which: Option<InboundKey>, farewell: Farewell) {
        self.shared.mailbox.put(OfTheirs::End(which, farewell, Instant::now() + LINGER));
    }

    fn load(dialer: &Dialer, peer: &PeerName, to: &NixlAddress) -> Result<Remote, NixlError> {
        let address = || -> Arc<str> { to.to_string().into() };
        let peer = peer.clone();
        if peer != *to.name() {
            let actual = to.name().to_string();
            return Err(NixlError::WrongName { peer, address: address(), actual });
        }
        dialer.agent.load(peer.as_str(), to.metadata()).map_err(|not_loaded| match not_loaded {
            NotLoaded::Taken => NixlError::NameTaken { peer },
            NotLoaded::OtherName(actual) => NixlError::WrongName { peer, address: address(), actual },
            NotLoaded::Native(status @ Status::INVALID_PARAM) => {
                NixlError::BadMetadata { peer, address: address(), status }
            }
            NotLoaded::Native(status) => NixlError::Unreachable { peer, address: address(), status },
        })
    }

    /// Says hello, and waits for the answer.
    fn greet(
        &self,
        cx: &ConnectContext,
        link: &Link,
        remote: &Remote,
        dialer: &Dialer,
        keys: u64,
        outcome: &Outcome,
    ) -> Greeted {
        let shared = &self.shared;
        let (peer, address) = (link.peer.clone(), link.address.clone());
        let hello = Hello {
            incarnation: shared.incarnation(),
            keys,
            name: shared.name.clone(),
            target: peer.clone(),
            metadata: &dialer.metadata,
        };
        let hello = Head::new(Kind::Hello, link.generation, 0).with(&hello.encode());
        if let Err(status) = remote.notify(&hello) {
            return Err(NixlError::Unreachable { peer, address, status });
        }
        loop {
            let Some(left) = shared.clock.real_wait_until(cx.deadline()) else {
                return Err(NixlError::TimedOut { peer, address });
            };
            if cx.is_cancelled() {
                return Err(NixlError::Cancelled { peer, address });
            }
            match outcome.recv_timeout(left.min(LOOK)) {
                Ok(answer) => {
                    let answer = answer?;
                    return match answer.verdict {
                        Verdict::Welcome if answer.name == peer => Ok(answer),
                        Verdict::Welcome | Verdict::WrongName => {
                            Err(NixlError::WrongName { peer, address, actual: answer.name.to_string() })
                        }
                        verdict => Err(NixlError::Refused { peer, address, verdict }),
                    };
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(NixlError::TransportGone { peer, address });
                }
            }
        }
    }
}

type Outcome = mpsc::Receiver<Greeted>;
type Greeted = Result<Answer, NixlError>;

impl Transport for Nixl {
    type Address = NixlAddress;
    type Connection = NixlConnection;
    type Error = NixlError;

    fn local_name(&self) -> Option<&PeerName> {
        Some(&self.shared.name)
    }

    /// Says goodbye to everybody who is connected to us, and does not wait for them. The [address](Nixl::local_address) is another
    /// from here on: publish it.
    fn new_incarnation(&self) -> Option<Incarnation> {
        self.shared.check_process().ok()?;
        let new = Incarnation::random();
        // Before the inbound connections are looked through: who comes later is answered with it.
        self.shared.incarnation.store(new.0, Ordering::Release);
        self.shared.address_changes();
        self.end_inbound(None, Farewell::Removed);
        Some(new)
    }

    /// One place for a name, so neither `OVERLAP` nor `UPDATES_IN_PLACE`; and no `CLOSE_QUIESCES`: nothing that NIXL can be asked
    /// stops a transfer to a peer that is stopped.
    fn capabilities(&self) -> Capabilities {
        Capabilities::NATIVE_CLOSE.with(Capabilities::PROBE)
    }

    fn connect(&self, cx: &ConnectContext, to: &NixlAddress) -> Result<Connected<NixlConnection>, NixlError> {
        self.shared.check_process()?;
        let dialer = self.shared.dialers.of(cx.name());
        let mailbox = &dialer.mailbox;
        let remote = Arc::new(Self::load(dialer, cx.name(), to)?);
        let (door, long_calls) = (dialer.agent.door.clone(), dialer.agent.long_calls.clone());
        let link = Arc::new(Link::new(cx, to, door, long_calls, mailbox.clone()));
        let (done, outcome) = mpsc::sync_channel(1);
        let dial = Dial { link: link.clone(), remote: remote.clone(), keys: to.keys(), done };
        mailbox.put(OfOurs::Dial(Box::new(dial)));
        match self.greet(cx, &link, &remote, dialer, to.keys(), &outcome) {
            Ok(answer) => {
                let max = self.shared.settings.max_notification.min(answer.max_notification as usize);
                let connection = NixlConnection::new(link, remote, max, dialer.clone());
                Ok(Connected { connection, incarnation: Some(answer.incarnation) })
            }
            Err(error) => {
                if !link.end_and_wait(mailbox, Ending::Now, || None) || remove(remote).is_some() {
                    cx.reporter().leaked("NIXL did not let go of a peer that did not come about");
                }
                Err(error)
            }
        }
    }

    /// Tells the peer why, and waits for it to have what was sent, for a second at most, then removes it. A connection that failed
    /// is not waited for.
    fn disconnect(&self, cx: &CloseContext, connection: NixlConnection, why: CloseReason) -> Closed<NixlConnection> {
        if !self.shared.process.is_this() {
            return Closed::Leaked("it is the parent's");
        }
        let ending = match why {
            CloseReason::Shutdown => Ending::Goodbye(Farewell::Shutdown),
            CloseReason::Failed => Ending::Now,
            _ => Ending::Goodbye(Farewell::Removed),
        };
        connection.disconnect(ending, cx.deadline, &self.shared.clock)
    }

    /// Sends a small message and waits for its answer, which the peer's own thread gives. Nothing else finds a peer that is
    /// stopped, or that the network swallows: NIXL raises no error for either.
    fn probe(&self, cx: &ProbeContext, connection: &NixlConnection) -> Liveness {
        connection.probe(cx.deadline, &self.shared.clock)
    }

    /// Lets nobody in any more, says goodbye to everybody who is connected to us, and waits until they have left. Who has
    /// not by the deadline is cut off. Then the inbox is closed: who waits for a message is told that none will come.
    fn end(&self, deadline: Instant) {
        let Shared { process, mailbox, registry, inbox, clock, .. } = &*self.shared;
        if !process.is_this() {
            return;
        }
        mailbox.put(OfTheirs::Refuse);
        mailbox.put(OfTheirs::End(None, Farewell::Shutdown, Instant::now() + FOREVER));
        registry.wait_until_empty(|| clock.real_wait_until(deadline));
        mailbox.put(OfTheirs::Cut(None));
        inbox.close();
    }
}

impl DataPlane for Nixl {
    fn max_notification(&self) -> usize {
        self.shared.settings.max_notification
    }

    /// NIXL's own `Ok` says less than nothing of a peer that is stopped, so no more than a window of messages may be untaken.
    fn notify(&self, connection: &NixlConnection, message: &[u8]) -> Result<(), NixlError> {
        connection.notify(message)
    }

    fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    fn register(&self, region: &Region) -> Result<(), NixlError> {
        let shared = &self.shared;
        shared.check_process()?;
        if lock(&shared.registered).contains_key(&region.id()) {
            return Ok(());
        }
        let with = |agent: &Arc<Agent>| {
            agent.register_region(region).map_err(|status| NixlError::Register { region: region.id(), status })
        };
        let ours = shared.dialers.0.iter().map(|dialer| with(&dialer.agent)).collect::<Result<_, _>>()?;
        let registered = Registered { ours, offered: with(&shared.server)? };
        // Two that register at once register twice, and the second goes again.
        let mut all = lock(&shared.registered);
        let is_new = !all.contains_key(&region.id());
        let spare = if is_new { all.insert(region.id(), registered) } else { Some(registered) };
        drop(all);
        drop(spare);
        shared.offers_more();
        Ok(())
    }

    fn deregister(&self, region: &Region) -> Result<(), NixlError> {
        let shared = &self.shared;
        shared.check_process()?;
        let id = region.id();
        let registered = lock(&shared.registered).remove(&id).ok_or(NixlError::NotRegistered { region: id })?;
        let all = registered.ours.iter().chain([&registered.offered]);
        let users: usize = all.map(|registration| Arc::strong_count(registration) - 1).sum();
        if users > 0 {
            // Somebody may have registered it anew meanwhile; what is spare is let go of without the lock.
            let spare = lock(&shared.registered).insert(id, registered);
            drop(spare);
            return Err(NixlError::StillInUse { region: id, transfers: users });
        }
        drop(registered);
        shared.address_changes();
        Ok(())
    }

    fn post(&self, connection: &NixlConnection, post: Post) -> Result<(), NixlError> {
        connection.post(post, &self.shared)
    }

    /// Only what the peer has not let begin: NIXL can't call a read or a write back.
    fn cancel(&self, connection: &NixlConnection, transfer: TransferId) {
        connection.cancel(transfer);
    }

    fn grants(&self) -> &GrantBook {
        &self.shared.grants
    }
}

impl Drop for Nixl {
    fn drop(&mut self) {
        if !self.shared.process.is_this() || exit::has_begun() {
            // Everything native of it is the parent's, or gone; its thread does not come back.
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.mailbox.put(OfTheirs::Stop);
        self.shared.dialers.0.iter().for_each(|dialer| dialer.mailbox.put(OfOurs::Stop));
        let here = std::thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != here) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Nixl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nixl")
            .field("name", &self.shared.name)
            .field("incarnation", &self.incarnation())
            .finish_non_exhaustive()
    }
}
