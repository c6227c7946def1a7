//! What costs what, and how to see it on your machine.
//!
//! There are no numbers on this page: they are in `BENCHMARKS.md` beside the README, with the machine, the command that printed
//! them, and the cases that lose.
//!
//! # What costs what
//!
//! | operation | touches | what makes it slower |
//! |---|---|---|
//! | a lease by handle and its end | one load of the count of forks, which nobody writes, two of the peer's word, one CAS and one `fetch_sub` on a cache line that this thread shares with nobody, if there are stripes enough | more threads than stripes on one peer; transitions of that peer, which write the word's line |
//! | a lease by id | a look into the slab and at the version, which is on the word's line | |
//! | a lease by name | hashing the name, a walk through the map, and a debt slot of arc-swap for the time of the look | longer names, more peers |
//! | cloning or dropping a [`Peer`](crate::Peer), [`PeerTable::peer`](crate::PeerTable::peer) | a count that all handles of the peer share | every other thread that does it |
//! | a refused lease | a pin of the records' collector, now and then its garbage | |
//! | a winning report | your error's `Display`, a note, one push, one unpark | |
//! | `ready()` of a peer that is Ready | a load | |
//! | every other change of a peer | its mutex, about a dozen small allocations before it, one record | |
//! | a step of the driver | one peer's mutex, tried; handing a job to a pool, which may start a thread | |
//! | insert | one slot, one path of the names; now and then room for a sixteenth more slots than there are. [`insert_many`](crate::PeerTable::insert_many) replaces the names once | |
//! | memory of a peer | one pair of cache lines per stripe, which its two bays share, and one record | [`stripes`](crate::Builder::stripes) |
//!
//! A stripe belongs to a thread by the order in which threads first lease anything in the process, modulo the number of stripes.
//! So the first S threads never share one; threads that come and go use the numbers up, and later ones may collide.
//!
//! # What the win is made of
//!
//! Two things are easily mixed up, so they are measured apart:
//!
//! 1. **Not connecting under a lock.** While one peer reconnects, a table behind one lock that is held through connect makes every
//!    send to every other peer late. Any design that connects outside the lock has most of this win, also one with a mutex. The
//!    tail benchmark and `pd_failover --compare` show it: the same program, with one lock held through connect beside it.
//! 2. **No lock on the way of a send.** This adds: several threads sending to *one* peer do not slow each other down; a
//!    thread that the system puts off in the middle of a lease holds nobody up; and a lease may be held across `.await`,
//!    for as long as a transfer takes, while a guard of a map may not.
//!
//! The first is worth milliseconds at every reconnect, the second nanoseconds at every send and the absence of rare stalls. If
//! you have one sending thread and connect outside your lock, the second is all there is to gain.
//!
//! # Recovery
//!
//! From a report to the first lease of the next generation there are: one push and wake of the driver, the last old lease, a
//! native close on a closing thread (with `OVERLAP` not waited for), the backoff (random between zero and its window), a push,
//! a connecting thread, the native connect, one push. The table's own part is a few wake-ups of threads; the backoff and the
//! native calls are the rest. A peer that was never stable pays a wider window each time:
//! [`Backoff::min_stable`](crate::Backoff::min_stable).
//!
//! # How it is measured
//!
//! - Costs are CPU time of pinned threads, compared with a floor in the same round: one CAS in and one `fetch_sub` out on a line
//!   of one's own, which is what any counted right costs. A machine that is busy or changes its clock shifts both.
//!   `cargo bench --bench lease`; with `-- --check`, exit status 1 if a bound on a ratio is broken.
//! - Tails are open loop: sends are due by a clock, and a send that could not start in time counts as late from when it was due.
//!   A closed loop would not send while it is stalled, and so not see the stall.
//! - Absolute tails of a shared machine are its scheduler's. Claims are shares and ratios of pairs taken in one run; that no healthy
//!   send waits for a held connect is not measured but proved, in `tests/spec/isolation.rs`, where the connect is held for ever.
//! - That a granted lease allocates nothing is a test, `tests/allocations.rs`.
//!
//! # What not to do
//!
//! - **Names on the hot path.** Look a peer up once and keep the [`Peer`](crate::Peer); put its [`PeerId`](crate::PeerId) into message
//!   headers and foreign code. By id costs a little more than by handle; by name costs a hash and a walk more.
//! - **Cloning handles per send.** A clone writes a line that all senders share. Borrow the handle, or let each thread keep its own
//!   clone. A lease is not a clone: it counts on its own stripe.
//! - **Holding a lease while you wait** for the same peer to be ready again: where the transport allows one connection per peer the
//!   reconnect waits for that very lease. Hold it for the native call or the request, give it back, then wait.
//! - **Fewer stripes than threads that send to one peer.** Then two of them share a line, and each lease costs a transfer of it
//!   between cores. More stripes than cores only cost memory.
//! - **A thread per request.** Each takes a new stripe number, so threads that live at the same time may share one, and each sets up
//!   the thread's locals of arc-swap and of the collector at its first look.
//! - **Reporting every error.** A busy queue or a local fault is not the peer's; [`Lease::notify`](crate::Lease::notify) and transfers
//!   sort that out by [`ErrorClass`](crate::ErrorClass) and report by themselves. A report costs a reconnect.
//! - **Polling `snapshot()` per send.** It visits every place there is.
//! - **Short drain deadlines with long transfers.** What ends as `Unknown` fails its request and still holds its pages.
