//! Every default of a table, why it is safe in production, and how it compares with what people know.
//!
//! A test compares each number in the columns "default" and "here" with the code (`src/builder.rs`), so this page cannot say what
//! the table does not do. All are settings of the [`Builder`](crate::Builder).
//!
//! # Trying again
//!
//! | setting | default | why |
//! |---|---|---|
//! | [`Backoff::base`](crate::Backoff::base) | 50 ms | a reset connection to a process that lives is back after 25 ms in the mean, and one to a process that restarts after a few tries; a request that waits for its prefill has seconds |
//! | [`Backoff::cap`](crate::Backoff::cap) | 5 s | a peer that is back is found within one request's patience. Reached after 7 failures; from there one dial per 2.5 s in the mean, and only while somebody asks |
//! | [`Backoff::min_stable`](crate::Backoff::min_stable) | 5 s | a connection that breaks sooner has proved nothing: without this, a peer that accepts and resets would be dialed at the first window for ever. As long as the cap, so that forgiving is never quicker than waiting |
//! | [`Breaker::after`](crate::Breaker::after) | 16 | with these windows about half a minute of failing in a row: a process that is only restarted is not held up. One that loads a model for minutes is dialed two or three times a minute, and its new metadata closes the breaker |
//! | [`Breaker::open_for`](crate::Breaker::open_for) | 30 s | between 15 and 30 s by jitter, then one try. New metadata of another boot closes it at once, so nobody waits for it who is told of the restart |
//! | [`Breaker::max_open_percent`](crate::Breaker::max_open_percent) | 10 | if more peers fail at once, the fault is more likely ours or the network's, and ends for all at once; then they must not all be left out for half a minute. One may always be open |
//!
//! A peer is never left out for good. Faults of this side (no descriptors left, say) back off the whole table and count against
//! no peer. `Incompatible` is not dialed sooner than the cap.
//!
//! # How long native calls may take
//!
//! | setting | default | why |
//! |---|---|---|
//! | [`connect_timeout`](crate::Builder::connect_timeout) | 5 s | Linux sends a lost SYN again after 1 and 3 s, so two lost packets are survived; connects inside one cluster take milliseconds. A native library whose connect takes longer (HCCL: up to two minutes) needs more. Others lose nothing by a long one: it gives up its permit when the time is over, and peers that timed out may hold only half of the permits |
//! | [`drain_deadline`](crate::Builder::drain_deadline) | 5 s | longer than any transfer that still moves; after it, who waits for the peer is told that it is not drained. No lease is ever broken by it |
//! | [`close_timeout`](crate::Builder::close_timeout) | 5 s | after it another thread does the closing; the call itself goes on |
//!
//! # How much at once
//!
//! | setting | default | why |
//! |---|---|---|
//! | [`max_concurrent_connects`](crate::Builder::max_concurrent_connects) | 32 | a thousand peers that restarted are back after 32 rounds of a connect, a fraction of a second, and the machine does not handshake with all of them at one instant. One thread each, which ends when it is idle |
//! | [`max_connects_per_second`](crate::Builder::max_connects_per_second) | no limit | backoff and the limit above suffice up to hundreds of peers; thousands that refuse at once come in bursts ([limitations](super::limitations)), and only their owner knows what the network bears |
//! | [`max_concurrent_closes`](crate::Builder::max_concurrent_closes) | 8 | closes are quick, or they hang; those that hang give up their place |
//! | [`max_stuck`](crate::Builder::max_stuck) | 32 | threads that native calls may hold for ever, of each kind; beyond, callers are told `Busy` rather than the process running out of threads |
//! | [`max_peers`](crate::Builder::max_peers) | 1,048,576 | more than any cluster; a bound for a loop that inserts by mistake |
//! | [`max_quarantined_bytes`](crate::Builder::max_quarantined_bytes) | 1 GiB | a peer that hangs in hundreds of large pages has no use for more, and the process can do without them |
//! | [`max_transfers_per_peer`](crate::Builder::max_transfers_per_peer) | 65,536 | transfers that hang keep their pages; so many pages of one bad peer, and no more |
//! | [`max_waiters_per_peer`](crate::Builder::max_waiters_per_peer) | 65,536 | all wait for one outcome; beyond, `Busy` at once, never a queue without a bound |
//! | [`stripes`](crate::Builder::stripes) | the cores, 4 to 16 | as many threads send to one peer without sharing a cache line; not more memory than that pays for |
//!
//! # What the table does by itself
//!
//! | setting | default | why |
//! |---|---|---|
//! | [`heartbeat`](crate::Builder::heartbeat) | off | how long a healthy peer may be silent only its user knows, and a probe is traffic that nobody asked for. For peers that can be stopped or cut off without a word it is recommended, with the two values below |
//! | [`Heartbeat::interval`](crate::Heartbeat::interval) | 1 s | one small message a second per peer; suspected after at most two seconds |
//! | [`Heartbeat::dead_after`](crate::Heartbeat::dead_after) | 3 s | a collection of garbage, a debugger or a short migration is survived; a request with a deadline of ten seconds still has time to go elsewhere |
//! | [`stalled_after`](crate::Builder::stalled_after) | off | how long a healthy peer may take a page's bytes only its user knows; 5 s where peers can be stopped |
//! | [`remove_failed_after`](crate::Builder::remove_failed_after) | off | a table is told who its peers are, and removes none behind its user's back |
//! | [`idle_ttl`](crate::Builder::idle_ttl) | off | the same |
//!
//! # Against gRPC's backoff
//!
//! gRPC's numbers are those of its *Connection Backoff Protocol* (`doc/connection-backoff.md` in `grpc/grpc`).
//!
//! | | here | gRPC |
//! |---|---|---|
//! | first wait, [`Backoff::base`](crate::Backoff::base) | 50 ms | 1 s |
//! | grows by | 2 | 1.6 |
//! | jitter | the whole window, from zero | 0.2 of the wait, both ways |
//! | longest wait, [`Backoff::cap`](crate::Backoff::cap) | 5 s | 120 s |
//! | an attempt may take, [`connect_timeout`](crate::Builder::connect_timeout) | 5 s | 20 s, or until the next is due |
//! | waits count from | the start of the attempt | the start of the attempt |
//! | forgets failures | after it was Ready for [`min_stable`](crate::Backoff::min_stable) | when the server's settings arrive |
//!
//! This table is the more eager one: in the first three seconds of an outage it dials a peer about seven times where gRPC does
//! three times, and later every 2.5 s or so, with an open breaker every 22 s, where gRPC comes to two minutes. gRPC's clients may
//! be millions, over the internet, and nobody knows them; a decode process has tens to thousands of peers inside one cluster, each
//! of them holds its requests up, and its owner may set a limit per second. Full jitter disperses what is eager: gRPC's clients
//! that lost a server at one instant come back within two fifths of a wait, these spread over all of it. And a server that
//! greets and then fails is, by gRPC's rule, forgiven at each greeting; here not before a connection has held.
//!
//! # Against Envoy's outlier detection
//!
//! Envoy's numbers are the defaults of its *Outlier detection (proto)*, `config.cluster.v3.OutlierDetection`.
//!
//! | | here | Envoy |
//! |---|---|---|
//! | failures in a row that eject, [`Breaker::after`](crate::Breaker::after) | 16 | 5 (`consecutive_5xx`) |
//! | ejected for, [`Breaker::open_for`](crate::Breaker::open_for) | 30 s | 30 s (`base_ejection_time`), times the number of ejections |
//! | at the longest, [`Breaker::open_for`](crate::Breaker::open_for) | 30 s | 300 s (`max_ejection_time`) |
//! | of all peers at most, in percent, [`Breaker::max_open_percent`](crate::Breaker::max_open_percent) | 10 | 10 (`max_ejection_percent`) |
//! | but always | one | one |
//! | comes back | by one try, when somebody asks, at once | at the next sweep, every 10 s (`interval`) |
//! | jitter | from half of the time | none (`max_ejection_time_jitter`) |
//!
//! Sixteen and not five, because what is counted differs: Envoy counts answers to requests, of which a busy host gives five in
//! a millisecond; here each failure is a connect, or a connection lost, with a backoff before the next. The time out does not
//! grow with each ejection: a dial per half a minute costs nothing, while a prefill that is well again and is not used for five
//! minutes costs a machine. What Envoy has beside this, ejection by the share of failed requests, is not here: this table does not
//! see requests. Who does may [report](crate::Peer::report) a connection.
