//! What each operation promises.
//!
//! | word | means |
//! |---|---|
//! | wait-free | ends in a bounded number of its own steps |
//! | lock-free | takes no lock of ours; retries only because another thread got through |
//! | leaf | takes locks that whoever has them holds over plain data only: a few instructions, never user code, a native call or another peer's work |
//! | slot | takes the mutex of that one peer, held likewise, and leaf locks |
//! | blocks | may wait for what the row names |
//!
//! Where not said otherwise, an operation may be called on any thread, inside async code and inside a transport's calls.
//! "First" means: but for a thread's first, which sets up that thread's locals (of the collector of records, or of arc-swap).
//! "Leaf if a last handle goes": what finds a peer by its id counts it for a moment. If the last handle of a removed peer is
//! dropped meanwhile, its place is given back here: two leaf locks, and now and then memory for the list of free places.
//!
//! # Leases
//!
//! | operation | progress | in one step | allocates | being removed, removed, shut down |
//! |---|---|---|---|---|
//! | [`Peer::lease`](crate::Peer::lease), granted | lock-free | admission to exactly one generation | no | |
//! | … refused | lock-free; wakes the driver once per failed generation | the reason is of the word that refused, or `Unsettled` | no, first | `Removed` or `ShutDown` |
//! | [`PeerTable::lease_by_id`](crate::PeerTable::lease_by_id) | the same; refused: leaf if a last handle goes | the same; a stale id is refused | no, first | the same until its last handle is gone, then `Unknown` |
//! | [`PeerTable::lease`](crate::PeerTable::lease) by name | the same, and one look at the names | the name is looked up in one snapshot | no, first | `Unknown`; `Removed` while the name is not free; `ShutDown` |
//! | dropping a [`Lease`](crate::Lease) | wait-free; the last of a closed connection tells the driver: lock-free, one unpark | | no | as ever |
//! | [`connection`](crate::Lease::connection), [`generation`](crate::Lease::generation), [`id`](crate::Lease::id), [`is_current`](crate::Lease::is_current) | wait-free | `is_current` may be stale at once | no | the connection stays open |
//! | [`Lease::name`](crate::Lease::name) | lock-free | | no, first | as ever |
//! | [`Lease::notify`](crate::Lease::notify) | never waits; locks as the transport: `Tcp` that connection's queue, `Memory` leaf | all of the message or nothing; at most once, in order per connection | as the transport: both do | `StaleGeneration`, nothing sent |
//! | [`Lease::write`](crate::Lease::write), [`read`](crate::Lease::read) | leaf, and as the transport | posted, or nothing was sent | yes | `StaleGeneration`, nothing sent |
//! | [`Lease::write_until`](crate::Lease::write_until), [`read_until`](crate::Lease::read_until) | the same; one unpark if its deadline is the peer's next | the same | yes | the same |
//!
//! # State
//!
//! | operation | progress | in one step | allocates | being removed, removed, shut down |
//! |---|---|---|---|---|
//! | [`phase`](crate::Peer::phase), [`generation`](crate::Peer::generation), [`id`](crate::Peer::id), [`name`](crate::Peer::name) | wait-free | one word; two calls are two moments | no | as ever |
//! | [`Peer::is_suspect`](crate::Peer::is_suspect) | wait-free | false unless the word read is Ready | no | false |
//! | [`Peer::record`](crate::Peer::record) | lock-free | the record of the word read, or `None` | no, first | the last one |
//! | [`Peer::status`](crate::Peer::status) | lock-free | phase, generation and record of one moment, each count of another | no, first | as ever |
//! | [`Peer::history`](crate::Peer::history) | slot | the last 32 transitions, of one moment | yes | as ever |
//! | [`PeerTable::events`](crate::PeerTable::events) | slot of every peer in turn; blocks while another subscription begins | each peer's state, then each of its transitions once, in order | yes | without Removed peers |
//! | [`Events::try_recv`](crate::Events::try_recv), polling [`next`](crate::Events::next) | leaf | | no | as ever, until the table is gone |
//! | [`Events::recv`](crate::Events::recv) | blocks until an event or the deadline | | no | the same |
//! | [`PeerTable::snapshot`](crate::PeerTable::snapshot) | lock-free; leaf if a last handle goes | each peer as in `status`; the list is not of one moment, and shows peers whose insert has not returned | yes | without Removed peers |
//! | [`PeerTable::time_to_declare_dead`](crate::PeerTable::time_to_declare_dead), [`time_to_reusable`](crate::PeerTable::time_to_reusable) | wait-free | of the settings; never changes | no | as ever |
//! | [`PeerTable::peer`](crate::PeerTable::peer), [`peer_by_id`](crate::PeerTable::peer_by_id), cloning a [`Peer`](crate::Peer) | lock-free, but writes a count that all handles of the peer share; `peer_by_id`: leaf if a last handle goes | one look | no, first | `None` |
//! | dropping a [`Peer`](crate::Peer) | wait-free; the last reference of a removed peer: leaf | | no; the last reference: as said above | the last of all drops the transport |
//!
//! # Failure and recovery
//!
//! | operation | progress | in one step | allocates | being removed, removed, shut down |
//! |---|---|---|---|---|
//! | [`Peer::report`](crate::Peer::report), [`Lease::report`](crate::Lease::report), [`Reporter::report`](crate::Reporter::report) | lock-free, then the error's `Display`, which is yours, and one unpark; by a `Reporter`: leaf if a last handle goes | the named generation fails, or nothing changes | the text, if it was current | `Stale`; by a `Reporter`, the last of all drops the transport |
//! | [`Peer::ready`](crate::Peer::ready), polled | Ready: wait-free. Else slot at the first poll, then leaf | joins the attempt that runs, or the next, and asks for it | yes | `Removed`, `ShutDown`, at once |
//! | [`Peer::wait_ready`](crate::Peer::wait_ready) | Ready: wait-free. Else slot, and blocks until the attempt's outcome or the deadline. On a table's own thread: `WouldDeadlock` | the same | the same | the same |
//! | [`Peer::try_elect`](crate::Peer::try_elect) | slot | elected, or nothing changes | yes | `NotNow(Removed)`, `NotNow(ShutDown)` |
//! | [`Ticket::publish`](crate::Ticket::publish), [`fail`](crate::Ticket::fail), dropping a ticket | slot; a late connection is closed elsewhere | ends its attempt once, or comes too late and says so | yes | `Superseded` |
//! | [`Peer::probe`](crate::Peer::probe) | leaf; may start a thread. The future: at the deadline at the latest | of one generation | yes | `Unknown`, at once |
//!
//! # Membership
//!
//! | operation | progress | in one step | allocates | being removed, removed, shut down |
//! |---|---|---|---|---|
//! | [`PeerTable::insert`](crate::PeerTable::insert), [`insert_many`](crate::PeerTable::insert_many) | slot of peers that live; your address's `Eq` and `Display`, under no lock; blocks while another insert makes room for a sixteenth more slots than there are | all names appear in one snapshot, or none | yes | may be inserted again; `ShutDown` |
//! | [`PeerTable::insert_group`](crate::PeerTable::insert_group) | the same, then the slot of every member | the same; the members join their group one after the other | yes | the same |
//! | [`Peer::update`](crate::Peer::update), [`PeerTable::update`](crate::PeerTable::update) | slot; your address's `Eq` and `Display`, under no lock | the address is stored; the generation goes on or is retired | yes | `Removed`; `ShutDown` |
//! | [`PeerTable::new_incarnation`](crate::PeerTable::new_incarnation) | slot of every peer in turn; blocks as the transport does | the transport has the new boot id; then each peer's generation is retired | yes | removed ones are left alone; `ShutDown` |
//! | [`Peer::remove`](crate::Peer::remove), [`remove_if`](crate::Peer::remove_if) | slot; copies a path of the names. The future: when it is removed, or at the deadline | admission ends, at that generation or not at all; then the name goes | yes | the same end for all who ask |
//! | [`PeerTable::shutdown`](crate::PeerTable::shutdown) | slot of every peer in turn. The future: by the deadline, 50 ms later if a native deregistration hangs | no insert is in the table after it; peers leave one after the other | yes | again: another report |
//! | dropping a [`PeerTable`](crate::PeerTable) | wait-free; the last clone: leaf, may start a thread | begins a shutdown | the last clone | |
//! | `wait` of [`Removal`](crate::Removal::wait), [`Probe`](crate::Probe::wait), [`Shutdown`](crate::Shutdown::wait), [`Cancel`](crate::Cancel::wait) | blocks until the future is ready. On a table's own thread: `WouldDeadlock` | | no | |
//!
//! # Pages
//!
//! | operation | progress | in one step | allocates | being removed, removed, shut down |
//! |---|---|---|---|---|
//! | [`register`](crate::PeerTable::register), [`deregister`](crate::PeerTable::deregister) | blocks: in the native library, and for another thread that is there | listed and known to the native side, or neither | yes | `ShutDown`; deregister: as ever |
//! | [`Completion::complete`](crate::Completion::complete) | leaf; runs the wakers of who waits | the outcome and the pages' return, or what was there first | no | as ever |
//! | [`Completion::waits`](crate::Completion::waits), [`begins`](crate::Completion::begins), [`progress`](crate::Completion::progress) | lock-free: one store, or one CAS | what was given up does not begin | no | as ever |
//! | [`PeerTable::grant`](crate::PeerTable::grant) | leaf, and the system's random bytes | | yes | lent also to a removed peer: a grant names a name. `ShutDown` |
//! | [`Grant::revoke`](crate::Grant::revoke), dropping a grant | leaf. The future: when the copy that runs has ended | nothing is admitted under it after it returns | no | as ever |
//! | [`Transfer::try_outcome`](crate::Transfer::try_outcome), polling one, [`Grant::is_quiesced`](crate::Grant::is_quiesced) | leaf | the first end stays | a poll's waker | as ever |
//! | [`Transfer::is_quiescent`](crate::Transfer::is_quiescent) | wait-free | once true, for ever | no | as ever |
//! | [`Transfer::is_stalled`](crate::Transfer::is_stalled), [`Grant::running`](crate::Grant::running) | wait-free | a moment's answer | no | as ever |
//! | [`Transfer::cancel`](crate::Transfer::cancel) | slot, and as the transport; one unpark if its deadline is the peer's next. The future: at quiescence, at its deadline at the latest | the transfer has its one end, whoever brings it about | yes | as ever |
//! | [`Transfer::wait`](crate::Transfer::wait), [`Revoked::wait`](crate::Revoked::wait) | block until the end or the deadline, on any thread; the first as [`Help`](crate::Help) for about a millisecond | | the transport's, and wakers | as ever |
//! | [`Completion::helped_by`](crate::Completion::helped_by) | lock-free | the first stays | no | as ever |
//! | [`Slice::read`](crate::Slice::read), [`Slice::write`](crate::Slice::write) | lock-free | 8 aligned bytes; a copy beside a remote write may see a part of it | no | as ever |
//! | [`Inbox::try_recv`](crate::Inbox::try_recv), polling [`next`](crate::Inbox::next) | leaf | each message goes to one receiver | a poll's waker | as ever, until the transport is dropped |
//! | [`Inbox::recv`](crate::Inbox::recv) | blocks until a message or the deadline | the same | no | the same |
//!
//! # In a forked child
//!
//! Every row above is wait-free, of what the parent made: it answers [`UsedAfterFork`](crate::UsedAfterFork) before it takes a
//! lock, or reads what stood at the fork (see [`limitations`](super::limitations)). On the way of a lease that is one
//! relaxed load.
//!
//! # What an observer may see
//!
//! - After `report` or `remove` has returned, with whatever answer, nobody who learns of that is admitted to that generation.
//!   Leases granted before stay valid until they are dropped: they may still use the connection, which may still work.
//! - A phase read is of one moment. A record lags behind the word and is never ahead of it.
//! - Everybody who waits for one attempt gets that attempt's outcome. Nobody gets an outcome older than their question.
//!   Ready may have passed by the time it is read.
//! - A transport sees at most one `connect` per name at a time, also across a removal and the next insert of the name;
//!   none before the connection before it is closed, unless it has the `OVERLAP` capability; and one `disconnect` per
//!   connection (more only where it answered `Retry`).
//! - A transfer has one end here, its outcome, and one at the owner of the page, whose loan is given back: whoever gives it
//!   up, at whatever point, and whatever the transport raises. Where the peer can't be told, the end of the connection is the
//!   owner's. After [`Cancelled::Quiesced`](crate::Cancelled::Quiesced) nothing touches the local pages.
//! - `Ok` of a notification means accepted by the transport. `Done` of a write means that the owner of the page has said so;
//!   over `Ucx` with `one_sided`, that libucp has flushed it there.
//! - Generations grow per peer. They are not consecutive.
//!
//! # Whose code runs where
//!
//! | code | thread |
//! |---|---|
//! | `Transport::connect` | connecting |
//! | `Transport::disconnect`, destructors of connections | closing |
//! | `Transport::probe` | probing |
//! | `DataPlane::notify`, `post`, `register`, `Transport::new_incarnation` | the caller's |
//! | `Help::help`, `stop`, a helper's destructor | whoever is in [`Transfer::wait`](crate::Transfer::wait) |
//! | `DataPlane::cancel` | the caller's of [`Transfer::cancel`](crate::Transfer::cancel); closing, when a deadline has passed |
//! | `DataPlane::deregister` | the caller's; at the end of a table the ending thread |
//! | `Transport::end` | the ending thread |
//! | the transport's destructor | whoever gives back the last of table, handles, leases and transfers, or makes the last call on a reporter or a completion: a thread of the table, of who waits for a transfer, or of the transport itself, which it must not join then |
//! | an address's comparison and text | the one that inserts |
//! | an address's destructor | closing; the inserting one, if it was not taken over; connecting, if its peer was removed meanwhile |
//! | a transport error's text | the one that reports, or on which the native call failed |
//! | a transport error's destructor | whoever waited for it last; connecting, if nobody did |
//! | a waker's `wake` | the one that ends the wait: a thread of the table, the driver too, of the transport, or a caller's |
//! | a waker's `clone` and destructor | the one that polls; the one that ends the wait |
//!
//! What a transport panics with is caught. None of this runs under a lock of ours, except that `register` and `deregister` run
//! one at a time.
//!
//! # How it is checked
//!
//! Allocation: `tests/allocations.rs`, for leases, refusals, stale reports, and what State says allocates nothing, but for the
//! last reference of a peer. What runs under no lock: `tests/spec/reentrancy.rs`. Progress and atomicity: [`internals`](super::internals).
