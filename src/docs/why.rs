//! Why it is made like this: questions, answers, evidence.
//!
//! *Measured* means by us, of the bare data structure in question or of the named software as published, on Linux x86-64 without
//! RDMA hardware; two cores unless another number is given. None of these figures is of this crate: those are in `BENCHMARKS.md`,
//! with the commands that print them.
//!
//! # Why a library for this at all?
//!
//! Because a dictionary of peers with a check before the add is wrong in the same way everywhere, and the usual repair is wrong in
//! another. A published failure: two threads see the same peer absent after one transient `NIXL_ERR_REMOTE_DISCONNECT`, both add
//! it, UCX aborts, the router is killed, and a deployment of two nodes is down
//! ([LightLLM #1470](https://github.com/ModelTC/LightLLM/issues/1470)). Measured with the same pattern on NIXL 1.5.1: with its
//! default of no thread synchronisation, SIGSEGV in 4 of 5 runs within seconds; with its strictest, no crash and file descriptors
//! from 26 to 3,715 in a minute. In LMCache 0.5.6's synchronous backend, N threads that found one receiver absent made N connects
//! and leaked N − 1 sockets, in 12 of 12 trials.
//!
//! # Why a lease, and not a guard of a map?
//!
//! A guard of a map is a lock on a part of the map. While it is held, an insert or a removal waits, and with it everybody behind it;
//! it may not cross `.await`, and may not live as long as a transfer. A lease is a count in the gate of *one* connection: it keeps
//! that connection open and nothing else, it may be held for minutes and dropped on another thread, and the peer can fail, be
//! reported, and (with `OVERLAP`) be connected again meanwhile. Measured on 16 cores, one peer, 16 threads: a guard of a
//! concurrent map 1,431 ns per use, a lease 22.
//!
//! # Why not hand out an `Arc` of the connection?
//!
//! Its count is one cache line that all senders write: measured, `load_full` of arc-swap takes 37 ns on one thread and 1,424 on 16
//! cores. And whoever drops the last clone runs the native close, on a sender's thread, at a time nobody chose.
//!
//! # Why a generation?
//!
//! Because errors come late. An error of the old connection that removes "the peer" removes the new connection. With a number for each
//! attempt, a report says *which* connection broke, and one that comes too late changes nothing and is told so. Equality is all
//! that is asked of it, so no clock and no agreement between processes is needed.
//!
//! # Why are generations counted per table, not per peer?
//!
//! So that no two words of the table are ever the same. A lease by id may be put off for a whole life of its slot: the peer is removed,
//! another takes its place. With a counter per peer the second look could find the same word again. With one counter it cannot, so by
//! id needs neither an epoch nor a count ([`internals`](super::internals), 1 and 15), and costs a little more than by handle.
//!
//! # Why is a generation not enough to know a restarted peer?
//!
//! It is ours: it says which of *our* attempts. Whether the same process answers is said by the peer's
//! [`Incarnation`](crate::Incarnation), its boot id. An address that names one refuses any other.
//!
//! # Why not one lock?
//!
//! One lock is held through connect, or it is not one lock. A connect takes from milliseconds (UCX, reconnecting: 2–50 ms) to
//! minutes (HCCL: up to 120 s). Measured, open loop, with another peer reconnecting for 5 ms in every 20: a lock through connect
//! makes 26 % of all sends more than 100 µs late, gates 0.03 %. [`performance`](super::performance) says which part of that is
//! due to the lock's length and which to the lock.
//!
//! # Why not a read-write lock, then?
//!
//! Readers write its count. Measured on 16 cores at one peer: 32 ns on one thread, 986 on 16.
//!
//! # Why is a count striped?
//!
//! For the same reason. Measured on 16 cores: one stripe 21 ns on one thread and 948 on 16; sixteen stripes 22 on both. It costs
//! memory, so the number of stripes is a setting.
//!
//! # Why not an epoch, or hazard pointers, for connections?
//!
//! An epoch frees when *everybody* has moved on. A lease that is held for a transfer would be a pin for as long: measured, one idle
//! pinned thread froze reclamation in the whole process, and one stalled pin stopped 10,000 of 10,000 closes. A gate is asked only
//! by those who use this connection. Hazard pointers keep memory alive but do not say "the last one is out, close now", which is
//! the point. An epoch is used for records: plain data, read in passing, where late freeing harms nobody.
//!
//! # Why a word and a gate, when the gate could hold everything?
//!
//! The count in the slot's word would make the word busy for all, and one stuck transfer would keep the peer from connecting again.
//! Two words need the second look. It is one load of a line that is hardly ever written.
//!
//! # Why two bays?
//!
//! At most one live and one draining connection per peer are useful: with two places a transport that allows it connects while the
//! old one drains, and a third can't pile up. Places are inline and never freed, so a late entrant always touches memory that is
//! a gate.
//!
//! # Why is the owner of a connect elected?
//!
//! So that nobody has to agree on who that is. Whoever moves the word to Connecting(g′) is the owner; everybody else reads that there is one and
//! fails fast or waits. The election holds the slot's mutex besides its CAS, because it has more to establish than the word: no other
//! native connect runs, a bay is free, the backoff is over. By a bare CAS, two native connects may run at
//! once. Senders never take that mutex.
//!
//! # Why does a report not reconnect?
//!
//! The reporter is a sender. Connecting there makes it wait; and a peer that nobody sends to any more need not be connected. So a report
//! only ends the generation, and the next who wants the peer asks, once per failure and not before the backoff is over. Measured in a
//! transporter whose senders reconnect by themselves, behind a lock: 267 connects to dead metadata for 14 restarts.
//!
//! # Why no retry?
//!
//! Because only the caller knows whether sending twice is harmful. A failed send says whether anything may have been sent
//! ([`Sent`](crate::Sent)); repeating a KV-page write blindly may write into a page that belongs to another request by now.
//! [`Outcome::Unknown`](crate::Outcome::Unknown) exists for the same reason: when a peer dies, nobody can tell what it has.
//!
//! # Why does `ready()` not sleep through a backoff?
//!
//! A request that is going to fail should fail while there is time to send it elsewhere. It is told when to come again.
//!
//! # Why jitter over the whole window?
//!
//! Clients that lost one peer at the same instant come back at the same instant, again and again, unless their waits are spread.
//! Spreading them over the whole window needs the fewest calls in all
//! ([AWS Architecture Blog, 2015](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/)).
//!
//! # Why is a connection closed on another thread?
//!
//! A native close may block, and takes locks that native connects hold: measured in Python over NIXL, a removal that met another thread's
//! add froze the whole interpreter for that connect. A sender that happens to be the last to leave must not pay that. And closing while
//! another thread sends crashed UCX in 4 of 4 runs: hence the gate.
//!
//! # Why a driver thread, when callers could do the work?
//!
//! Timers need a thread anyway. With one, no sender ever does another peer's work, "who does it" has one answer, and everything that is
//! not a send can be tested step by step on a clock that the test moves.
//!
//! # Why six pools?
//!
//! Each kind of native call may hang, and what hangs must not hold up what would free it, or what somebody else waits for: a connect
//! that hangs needs a close, closes of removed peers must not hold up those of peers in the table, heartbeats must not hold up the
//! probes of callers, and a shutdown must come to its report although closes hang.
//!
//! # Why does the record lag behind the word?
//!
//! Because a reader takes no lock, and two things can't be changed at once. What decides is one word; what explains may come a
//! moment later, and says so (`Unsettled`), but never before.
//!
//! # Why is a page not ours when its transfer has ended?
//!
//! The end of a wait is not the end of a write. NIXL may give a released handle back as still active; a peer that is stopped may go on and write
//! minutes later. A page comes back when the transport has proven that nothing touches it, or when the connection is closed and
//! closing proves it.
//!
//! # Why is a grant checked at each chunk?
//!
//! So that taking a page back never waits for a writer that was stopped in the middle of a frame: what follows goes nowhere.
//!
//! # Why are heartbeats off unless they are asked for?
//!
//! Silence is not death, and what counts as too long is your policy. Measured: a peer that is stopped raises no error in UCX or NIXL at
//! all, and 5 s without a network end without one, too. So there must be a deadline somewhere: a
//! [`heartbeat`](crate::Builder::heartbeat), a transport's own keepalive, your requests' deadlines or a
//! [`probe`](crate::Peer::probe).
//!
//! # Why arc-swap, with an open report against it?
//!
//! Names are read on a path that should not wait. It is named in one file (`latest.rs`), is not on the way of a lease by handle or
//! by id, and can be taken out there ([arc-swap #210](https://github.com/vorner/arc-swap/issues/210)).
