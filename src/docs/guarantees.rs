//! What each operation promises.
//!
//! | operation | lock-free | may wait | allocates | atomic in one step |
//! |---|---|---|---|---|
//! | [`Peer::lease`](crate::Peer::lease), granted | yes | never | no | admission to one generation |
//! | … refused | yes | never | no, but for a thread's first; wakes the driver at most once per failed generation | the reason is of the word that refused, or `Unsettled` |
//! | [`PeerTable::lease_by_id`](crate::PeerTable::lease_by_id) | yes | never | as above | as above; a stale id is refused |
//! | [`PeerTable::lease`](crate::PeerTable::lease) by name | yes | never | no | the name is looked up in one snapshot |
//! | dropping a lease | yes | never | no; the last one of a closed connection wakes the driver | |
//! | [`Lease::notify`](crate::Lease::notify) | as the transport | never | as the transport | at most once, in order per connection |
//! | [`Lease::write`](crate::Lease::write), [`read`](crate::Lease::read) | no: the peer's list of transfers | never for the peer's sake | yes | posted, or nothing was sent |
//! | [`Peer::report`](crate::Peer::report) | yes | never | one note | the named generation fails, or nothing changes |
//! | [`Peer::record`](crate::Peer::record), [`PeerTable::snapshot`](crate::PeerTable::snapshot) | yes | never | yes | one record; the list is not of one moment |
//! | [`Peer::ready`](crate::Peer::ready) | no: the slot's mutex, briefly | only as a pending future | yes | joins the attempt that runs, or the next |
//! | [`PeerTable::insert`](crate::PeerTable::insert), [`Peer::remove`](crate::Peer::remove) | no | no; a removal's future waits | yes | the name appears or goes in one snapshot |
//! | [`Grant::revoke`](crate::Grant::revoke) | yes, but for the book of grants | only its future | yes | nothing is admitted after it returns |
//!
//! A refusal looks for its reason in the peer's record. A thread's first look registers the thread with the collector of
//! records, which allocates. A refusal by id counts a reference of the peer while it looks: if the peer is Removed and its
//! last handle goes meanwhile, the refused call gives the peer's place back, under locks held for a few instructions.
//!
//! # What an observer may see
//!
//! - After `report` or `remove` has returned, to whomever and with whatever answer, no thread is admitted to that generation.
//!   Leases that were granted before stay valid until they are dropped: they may still use the connection, which may
//!   still work.
//! - A phase read is of one moment. A record lags behind the word and is never ahead of it.
//! - Everybody who waits for one attempt gets that attempt's outcome. Nobody gets an outcome older than their question.
//! - A transport sees at most one `connect` per name at a time, also across a removal and the next insert of the name;
//!   none before the connection before it is closed, unless it has the `OVERLAP` capability; and one `disconnect` per
//!   connection (more only where it answered `Retry`).
//! - `Ok` of a notification means accepted by the transport. `Done` of a write means that the owner of the page has said so.
//! - Generations grow per peer. They are not consecutive.
//!
//! # Whose code runs where
//!
//! | code | thread |
//! |---|---|
//! | `Transport::connect` | connecting |
//! | `Transport::disconnect`, destructors of connections | closing |
//! | `Transport::probe` | probing |
//! | `DataPlane::notify`, `post`, `register` | the caller's |
//! | `DataPlane::deregister` | the caller's; at the end of a table the ending thread |
//! | an address's comparison and text | the one that inserts |
//! | an address's destructor | closing; the inserting one, if it was not taken over; connecting, if its peer was removed meanwhile |
//! | a transport error's text | the one that reports, or on which the native call failed |
//! | a transport error's destructor | whoever waited for it last |
//! | a waker's `wake` | the one that ends the wait |
//! | a waker's `clone` | the one that polls |
//!
//! What a transport panics with is caught. None of this runs under a lock of ours, except: a waker is cloned under the lock
//! of the cell it waits in, which guards nothing else, and `register` and `deregister` run one at a time.
