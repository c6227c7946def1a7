//! Words, one meaning each.
//!
//! | word | meaning |
//! |---|---|
//! | table, [`PeerTable`](crate::PeerTable) | all peers of this process |
//! | peer, [`Peer`](crate::Peer) | our handle of one remote agent |
//! | id, [`PeerId`](crate::PeerId) | a peer in 8 bytes; a stale one is detected |
//! | transport, [`Transport`](crate::Transport) | the pluggable data path |
//! | connection | one live native connection, all its parts |
//! | generation, [`Generation`](crate::Generation) | local number of one attempt to connect; equality decides staleness |
//! | incarnation, [`Incarnation`](crate::Incarnation) | remote boot id; differs after the peer's restart |
//! | phase, [`Phase`](crate::Phase) | Idle, Connecting, Ready, Failed, Removing, Removed |
//! | lease, [`Lease`](crate::Lease) | the right to use one generation's connection; keeps it open |
//! | slot, bay, gate | a peer's place; a place in it for one connection; the counter of who is inside |
//! | stripe | one of a gate's counts, on a cache line of its own, for some of the threads; a lease leaves on the one it entered |
//! | life | what a slot is to one peer, from insert to the drop of its last handle; numbered, so that a stale id is detected |
//! | note | the text of one report, kept at its peer until the generation is settled |
//! | visit | a call on a connection by somebody whose lease is over, to give up a transfer; the connection is not closed meanwhile |
//! | predecessor | the peer that had a name before, and is still leaving; its successor connects when it is Removed |
//! | permit | the right to run one of the table's concurrent connects |
//! | ticket | proof of being elected to connect |
//! | lane | the slow path of one slot, moved one step at a time |
//! | driver | the one loop that moves lanes and timers; makes no call that may block |
//! | transfer, [`Transfer`](crate::Transfer) | a read or write we posted |
//! | grant, [`Grant`](crate::Grant) | our permission for a peer to use our page |
//! | loan, [`Loan`](crate::Loan) | a grant as its borrower presented it: what the transport of the lender copies by |
//! | quiescent | nothing touches the page any more |
//! | quarantine | what has ended for its caller and may still be touched |
//! | stalled | a transfer that has begun and of which no byte moves |
//! | Suspect | a Ready peer that does not answer, or lets a transfer stall; nothing is refused or freed because of it |
//! | record, [`Record`](crate::Record) | the full state of a peer as plain data |
