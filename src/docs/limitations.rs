//! What this crate does not do.
//!
//! - **It notices silence late, and not on every transport.** A peer that stops answering without an error (stopped,
//!   black-holed) is found by `Tcp`'s [keepalive](crate::transport::tcp::TcpBuilder::keepalive), after its dead timeout; on
//!   other transports by your own deadlines or by [`Peer::probe`](crate::Peer::probe), then reported. An inbound connection
//!   whose messages fill its share of the inbox is not read, so a dialer that dies meanwhile is found only once messages are
//!   received again.
//! - **It does not cancel transfers by itself.** A transport may be told to ([`DataPlane::cancel`](crate::DataPlane::cancel)),
//!   and the far side with it; a transfer ends when the transport says so, when its connection is closed, or as
//!   `Unknown` at the drain deadline of its failed generation.
//! - **It authenticates a handshake, not what follows.** Without a [secret](crate::transport::tcp::TcpBuilder::secret) `Tcp`
//!   binds and dials loopback only, and an inbound name is a claim. With one, each side proves that it knows it; later frames
//!   are neither encrypted nor authenticated, all who know the secret are trusted alike, and changing it means that old and
//!   new processes refuse each other meanwhile. Grants have 128-bit ids.
//! - **It replaces no address.** A live name has one address until it is removed. On a transport without `OVERLAP`, a name can be
//!   inserted again when its removal has resolved.
//! - **A forgotten lease** (`mem::forget`) keeps its connection open for ever and, on a transport without `OVERLAP`, its peer
//!   unusable. The snapshot shows it; no other peer is affected.
//! - **A native call that never returns** costs its thread. Beyond `max_stuck` connects, new ones are
//!   answered `Busy`; beyond as many probes, new ones are answered `Unknown`. A peer in the table may have three closes that
//!   hang, each with a thread; of removed peers' closes `max_stuck` may hang before the others wait for a place.
//! - **A peer waits for its own native calls.** While a connect of it is stuck, [`Peer::ready`](crate::Peer::ready) answers
//!   `Busy`, and its name can't be inserted again after a removal (`StillRemoving`) until that call is back.
//! - **A `Peer` handle keeps the transport**, and so do a lease and an unfinished transfer: what the transport owns, like
//!   its threads, stays after the table is shut down and dropped, until the last of them is gone. `Tcp` stops listening when
//!   `shutdown()` resolves.
//! - **Goodbyes need a shutdown.** A process that drops its table and transport and exits at once breaks its connections off;
//!   its peers see a loss.
//! - **Waiting inside a transport's call** answers `WouldDeadlock`, also on another table: the mark is the thread's, not the
//!   table's.
//! - **After `fork`** the child must not use a table: its threads are not there. This is not detected yet.
//! - **Backoff has no breaker**: attempts to a dead peer go on at the cap's pace for as long as somebody asks.
//! - **Ids wrap**: a slot's version is 32 bits, so an id may name another peer after 2³² peers in one slot. A generation is 60 bits.
//! - **Time**: deadlines are of the table's clock. With `Clock::manual` they do not pass by themselves, and transports with
//!   sockets still use the system's.
