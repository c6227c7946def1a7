//! What this crate does not do.
//!
//! # About peers
//!
//! - **It notices silence late, and not on every transport.** A peer that stops answering without an error (stopped,
//!   black-holed) is found by `Tcp`'s [keepalive](crate::transport::tcp::TcpBuilder::keepalive), after its dead timeout; on
//!   other transports by a [heartbeat](crate::Builder::heartbeat), which is off unless it is asked for, or by your own deadlines
//!   and [`Peer::probe`](crate::Peer::probe). A native probe that hangs holds its lease: where the transport has one slot per
//!   name, the reconnect waits for it. An inbound connection
//!   whose messages fill its share of the inbox is not read, so a dialer that dies meanwhile is found only once messages are
//!   received again.
//! - **It authenticates a handshake, not what follows.** Without a [secret](crate::transport::tcp::TcpBuilder::secret) `Tcp`
//!   binds and dials loopback only, and an inbound name is a claim. With one, each side proves that it knows it; later frames
//!   are neither encrypted nor authenticated, all who know the secret are trusted alike, and changing it means that old and
//!   new processes refuse each other meanwhile. Grants have 128-bit ids.
//! - **Places for inbound connections are for all.** Beyond [`max_inbound`](crate::transport::tcp::TcpBuilder::max_inbound) whoever
//!   comes is refused; one dialer that keeps many connections open, under names of its own choice, takes the places of others.
//! - **Goodbyes need a shutdown.** A process that drops its table and transport and exits at once breaks its connections off;
//!   its peers see a loss.
//!
//! - **`Ucx` trusts the network.** UCX authenticates nobody and protects nothing. Only loopback addresses are listened on and
//!   dialled unless `trust_network` is said, but the lanes that carry data listen on every device that `UCX_NET_DEVICES` allows.
//!   libucp 1.13.1 aborts the process when somebody connects to its listener and sends what is not UCX's (`tcp_sockcm_ep.c`,
//!   "offset <= length"): any local user may, on loopback too, and so does a health check or a port scanner.
//! - **One `Ucx` per process.** With several, libucs of UCX 1.13.1 may abort the process (`async.c`, `handler->async == async`): it
//!   keeps events by descriptor number, and takes one worker's for another's when a number comes again. One is not affected.
//!   A forked child of a process that has one can't connect by one of its own: start it anew with `exec`.
//!   It also is one lock for all peers: libucp takes its worker's around each call, though never while it waits for a peer.
//! - **`Ucx` moves pages by messages unless its builder says `one_sided`.** Where no device reads and writes memory by itself,
//!   libucp emulates that with messages and answers each; if the writer's process is killed in between, libucp of UCX 1.13.1
//!   finds that fatal and aborts the process that is written to (`ucp_request.inl`, "unexpected error", under `ucp_put_handler`):
//!   within seconds in each run of a test that does it. Our own messages are answered by messages, for which an error is only
//!   that, if libucp copies what it sends (`ZCOPY_THRESH`, which the builder sets); they cost a copy on each side. Put and get are
//!   used only where both sides say `one_sided`. It is a setting because libucp of 1.13 does not say what its devices can do.
//! - **`Ucx` binds to the devices that are up.** libucp looks for devices when the transport is made; a process that starts while
//!   its link is down is not reached after it is up again, until it is started anew.
//! - **A peer that dies while a connect is under way may take a process along** that reaches it over libuct's TCP: libuct of UCX
//!   1.13.1 forgets that such an endpoint has failed, and aborts (`tcp_ep.c`, under `uct_tcp_ep_destroy_progress`). Once in some
//!   thousands of connects to one peer; within seconds where two dozen redial a process that restarts again and again. Who dials
//!   and who is dialled may be hit; nothing that is called from outside prevents it.
//! - **A process that starts while others dial its port and die may be taken along**: libucp of UCX 1.13.1 aborts then
//!   (`tcp_sockcm_ep.c`, under `ucp_worker_progress`), one in three where 600 were started under a flood of such dialers, within
//!   20 ms or not at all. One that runs has borne 50,000 of them.
//! - **A process that runs out of descriptors while others connect may not get over it.** libuct of UCX 1.13.1 takes the failed
//!   `accept` for the end of its listening socket, and may abort the process (`tcp_iface.c`, `listen_fd == iface->listen_fd`). A
//!   dial that lacked them fails with `UcxError::NoDescriptor`, which blames nobody else. Raise `ulimit -n`: a connection takes
//!   three.
//! - **libucs may crash on a variable that it can't read.** With `UCX_MAX_RNDV_LANES=many` in the environment that of UCX 1.13.1
//!   says so and dies, in `ucp_config_read`, whoever calls it. The same by `config` is an error.
//! - **A process should drop its `Ucx` before it exits.** libucs takes itself down in `exit`, while threads run, and aborts if one
//!   of them is in it. The transport's thread is kept out from there on; libucs of UCX 1.13.1 has a thread of its own, which may
//!   still be hit, once in some thousands.
//!
//! - **`Nixl` trusts its peers.** NIXL authenticates nobody and believes the metadata in an address as it is; whoever has ours may
//!   write to all that is registered, lent or not. Take addresses only from who you trust.
//!   Nothing refuses a second process that calls under a name; [`Notification::incarnation`](crate::Notification::incarnation)
//!   tells them apart.
//! - **`Nixl` is told of no death.** NIXL says that a connection broke to who calls next. A killed peer is found by the next
//!   message or transfer, by a sign of life that is asked for after 0.1 to 2 s while it owes an answer, or by a
//!   [heartbeat](crate::Builder::heartbeat). Its C API folds most errors into one, so what an error means is inferred (module
//!   `transport::nixl`, `error`). That a dialer of ours has died is found by what we say to it now and then: every 0.5 s when it
//!   has just fallen silent, every 30 s at last.
//! - **Pages that `Nixl` has lent to a process that died stay in quarantine** unless its builder says by `settle` after how long
//!   nothing more can land: NIXL says of nothing that it is over there. Those that are still lent when it is dropped stay there
//!   always. A transfer of ours to a peer that is stopped is never
//!   let go of either: NIXL goes on sending from a page after it has released its transfer, measured.
//! - **Over `Nixl` a permission for a page lasts while it is used.** What a borrower does with parts of a page that it was let in
//!   to is not told to the owner one by one: [`Grant::running`](crate::Grant::running) counts it as one, for some milliseconds
//!   longer than it moves. After [`Grant::revoke`](crate::Grant::revoke) the borrower may begin a transfer until it is told, which its
//!   thread may be some 20 ms late to look for while its senders stream, and [`Revoked`](crate::Revoked) resolves after that.
//! - **Over `Nixl`, transfers that nobody has waited for since they began end some milliseconds late beside those of the same
//!   connection that threads wait for**: futures, and the first to a page, which waits for its permission. The
//!   transport's thread leaves the processor to who waits in [`Transfer::wait`](crate::Transfer::wait).
//! - **A `Nixl` connects as slowly as NIXL does, for all peers of one agent.** An agent has one lock, and holds it while it loads a
//!   peer: a few milliseconds where the peer answers, as long as the operating system tries where the network swallows. Sends, and
//!   the agent's thread, wait for it. With several agents (`NixlBuilder::agents`) only the peers that share
//!   one do. Those who connect to us have one agent together.
//! - **NIXL keeps a descriptor for each connection** that was made and removed, on both sides, until the other process ends, and
//!   one for each load that failed until the agent ends (1.5.1). `Nixl` makes one load for each generation on each side and adds
//!   none of its own; backoff is what bounds them.
//! - **Only memory of this process is registered with `Nixl`**: descriptors carry a kind and a device to NIXL and to peers, but a
//!   [`Region`](crate::Region) is ordinary memory, so none of a GPU's can be registered yet.
//!
//! # About what is in use
//!
//! - **A forgotten lease** (`mem::forget`) keeps its connection open for ever and, on a transport without `OVERLAP`, its peer
//!   unusable. The snapshot shows it; no other peer is affected.
//! - **Giving a transfer up is a request.** [`Transfer::cancel`](crate::Transfer::cancel), a deadline of its own and the drain
//!   deadline end it for its caller and tell the peer ([`DataPlane::cancel`](crate::DataPlane::cancel)); its pages are ours
//!   again when the peer has answered or the connection is closed, and a peer that hangs does not answer. Until then they stay
//!   allocated and their region registered, and count against [`max_quarantined_bytes`](crate::Builder::max_quarantined_bytes).
//!   A transport that can't cancel lets them run to their end.
//! - **What stands still is noticed only where the transport says how far it is**
//!   ([`Completion::progress`](crate::Completion::progress)), and only if [`stalled_after`](crate::Builder::stalled_after) is
//!   set. Bytes count as moved when they are given to the operating system, so what its buffers hold looks like progress.
//! - **A `Peer` handle keeps the transport**, and so do a lease and an unfinished transfer: what the transport owns, like
//!   its threads, stays after the table is shut down and dropped, until the last of them is gone. `Tcp` stops listening when
//!   `shutdown()` resolves.
//! - **Memory of places is kept**: a table holds as many slots as it ever had peers at once, and a sixteenth more at most, until
//!   it is gone. Each has `stripes` cache-line pairs, which its two bays share.
//! - **A stage that can't be undone is counted**, of a connection that came about and of one that did not
//!   ([`Stages`](crate::transport::Stages)); it is not tried again.
//! - **What cannot be closed is forgotten**: a connection that its transport leaks, or refuses to close until the drain deadline,
//!   is counted and never dropped, because its destructor might close it.
//!
//! # About native calls
//!
//! - **A native call that never returns** costs its thread. Beyond `max_stuck` connects, new ones are
//!   answered `Busy`; beyond as many probes, new ones are answered `Unknown`. A peer in the table may have three closes that
//!   hang, each with a thread; of removed peers' closes `max_stuck` may hang before the others wait for a place.
//! - **A peer waits for its own native calls.** While a connect of it is stuck, [`Peer::ready`](crate::Peer::ready) answers
//!   `Busy`; after a removal its name may be inserted again at once, but the new peer connects when that call is back, and
//!   who waits for longer than the drain deadline is answered `WaitingForPredecessor`.
//! - **Names and registrations rest on arc-swap**, which has an open report of a use after free under memory pressure on arm64
//!   ([#210](https://github.com/vorner/arc-swap/issues/210)). Leases by handle and by id do not look there; a lease by name, an
//!   insert, a post and a grant do. A replaced snapshot is kept until nobody counts it, which narrows what could go wrong and
//!   does not rule it out.
//! - **What your native library locks, it locks.** A library that holds one lock through connect (NIXL's agent does) delays other
//!   peers' sends inside itself; several agents, one table each, are the way around.
//! - **A native registration that hangs** holds up every other `register` and `deregister` of its table, and nothing else.
//! - **Waiting inside a transport's call** answers `WouldDeadlock`, also on another table: the mark is the thread's, not the
//!   table's. [`Transfer::wait`](crate::Transfer::wait), [`Revoked::wait`](crate::Revoked::wait) and
//!   [`Inbox::recv`](crate::Inbox::recv) have no such mark: there, a wait for itself ends at its deadline.
//! - **A waker that blocks holds up whoever wakes it**, which may be the driver, and then every peer of the table. Wakers of
//!   ordinary executors only enqueue a task.
//!
//! # About processes and time
//!
//! - **After `fork`** what the parent made is the parent's: its threads are not in the child. There every call answers
//!   [`UsedAfterFork`](crate::UsedAfterFork) at once, in the form of its own error; a transfer is `Unknown`, a probe too, an
//!   inbox and a subscription are closed; what only reads (phase, record, status, snapshot) shows how it stood at the fork;
//!   dropping does nothing and frees little. The parent goes on as if nothing had happened. A child may build a table of its own,
//!   over a transport of its own. It keeps copies of the parent's descriptors until it ends or executes another program: a port
//!   stays taken, and a connection that ends without a goodbye (a cut, the parent's death) is open for its peer until then or
//!   until its keepalive finds it; so let children execute something, or fork before there is a table. Other threads' pins at the
//!   fork stay for ever, so a child's own table may not free its old records. Not noticed are processes made by a bare `clone`,
//!   past the C library. A transport of your own must itself keep its destructors from harming the parent.
//! - **A process restored from a snapshot** must say so ([`PeerTable::new_incarnation`](crate::PeerTable::new_incarnation)) before
//!   it uses the table; nothing notices it by itself. Until then its connections are what its memory says.
//! - **If the driver thread dies**, by a bug of this crate, what waits is answered `DriverDied`; peers that are Ready go on,
//!   nothing reconnects or is closed, and the table's memory is not freed. Transfers that wait for deadlines end as `Unknown`.
//! - **Connects per second are not limited by default.** Each peer's backoff spreads its own dials, and `max_concurrent_connects`
//!   those that take time. Thousands of peers that are lost together and refuse quickly are dialed in bursts, unless
//!   [`Builder::max_connects_per_second`](crate::Builder::max_connects_per_second) is set.
//! - **Ids wrap**: a slot's version is 32 bits, so an id may name another peer after 2³² peers in one slot. A generation is 60
//!   bits. No other counter is checked either: on 32-bit targets, 2³² forgotten handles of one peer overflow its count.
//! - **Time**: deadlines are of the table's clock. With `Clock::manual` they do not pass by themselves, and transports with
//!   sockets still use the system's.
//! - **Urgency**: the driver is one thread of ordinary priority. If the system does not run it, nobody is elected or closed;
//!   leases of Ready peers do not need it.
