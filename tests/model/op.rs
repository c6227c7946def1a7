//! What can be done to a table, as plain data: small enough to shrink, and printed as the Rust code that does it again.
//!
//! An operation names things (peers, handles, leases, transfers) by a number that is taken modulo how many there are, so
//! every sequence of operations means something. One that can't be done, because there is no such thing or because what
//! it does would depend on the order in which threads happen to run, is passed over.

/// Names a table may hold at once, and nodes of the fabric. A few, so that operations meet.
pub(crate) const NAMES: usize = 3;

/// What the transport can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    /// A new connection may be opened while the old one of the same name drains.
    pub(crate) overlap: bool,
    /// A close ends the transfers of its connection.
    pub(crate) quiesces: bool,
}

/// How a connect ends that a test interferes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectEnd {
    /// With an error of the peer.
    Broken,
    /// With "come again in 70 ms".
    Busy,
    /// With another protocol.
    Incompatible,
    /// With a panic.
    Panic,
}

/// How a close ends that a test interferes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseEnd {
    /// The native side keeps the connection.
    Leaked,
    /// It was gone.
    AlreadyGone,
    /// With a panic.
    Panic,
}

/// How a call inside a lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendEnd {
    /// As it should.
    Accepted,
    /// With an error of the peer.
    Broken,
    /// With a fault of this process.
    Local,
    /// With a panic.
    Panic,
}

/// Where a test holds calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Connect,
    Close,
    /// The end of a transfer whose bytes have moved.
    Complete,
}

/// Which generation is named: the current one, or one of those the peer ever had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Current,
    Old(u8),
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Address 0 is the node of that name, 1 another node, 2 the node in its present life only.
    Insert {
        name: u8,
        address: u8,
    },
    Find {
        name: u8,
    },
    CloneHandle {
        handle: u8,
    },
    DropHandle {
        handle: u8,
    },
    Lease {
        handle: u8,
        elsewhere: bool,
    },
    LeaseByName {
        name: u8,
    },
    LeaseById {
        peer: u8,
    },
    DropLease {
        lease: u8,
        elsewhere: bool,
    },
    Notify {
        lease: u8,
        end: SendEnd,
    },
    Report {
        handle: u8,
        which: Which,
    },
    ReportLease {
        lease: u8,
    },
    /// Of an error of the connection's own, from a thread of the transport; it may come before its attempt has ended.
    NativeError {
        name: u8,
    },
    /// The same, with the connection as it was, and of any generation.
    LateError {
        link: u8,
    },
    Ready {
        handle: u8,
    },
    ForgetWaiter {
        waiter: u8,
    },
    Hold {
        at: At,
        name: u8,
    },
    Release {
        at: At,
        name: u8,
    },
    NextConnect {
        name: u8,
        end: ConnectEnd,
    },
    NextClose {
        name: u8,
        end: CloseEnd,
    },
    Kill {
        node: u8,
    },
    Revive {
        node: u8,
    },
    /// Killed and revived: another incarnation.
    Restart {
        node: u8,
    },
    Remove {
        handle: u8,
        within: u8,
    },
    RemoveIf {
        handle: u8,
        which: Which,
        within: u8,
    },
    /// Addresses as in `Insert`.
    Update {
        handle: u8,
        address: u8,
    },
    /// By hand: the ticket is ended by one of the next three.
    Elect {
        handle: u8,
    },
    /// Connects on the test's thread, and publishes or fails as that ends.
    Publish {
        ticket: u8,
    },
    FailTicket {
        ticket: u8,
    },
    DropTicket {
        ticket: u8,
    },
    Write {
        lease: u8,
    },
    /// With a deadline of its own.
    WriteUntil {
        lease: u8,
        within: u8,
    },
    Cancel {
        transfer: u8,
        within: u8,
    },
    Grant {
        handle: u8,
    },
    Revoke {
        grant: u8,
    },
    DropGrant {
        grant: u8,
    },
    /// The node writes into the page over a connection of its own, which then ends.
    Borrow {
        grant: u8,
        node: u8,
    },
    Register,
    Deregister,
    /// The process goes on as another incarnation.
    Renew,
    Advance {
        by: u8,
    },
    Shutdown {
        within: u8,
    },
}

/// What [`Op::Advance`] and the deadlines mean by a number, in milliseconds.
pub(crate) const STEPS: [u64; 6] = [1, 20, 60, 400, 1_100, 3_500];

/// Bytes that make one operation.
pub(crate) const BYTES: usize = 4;

impl Op {
    /// The operation these bytes stand for: all bytes mean something, and smaller ones mean simpler things.
    pub(crate) fn of([kind, a, b, c]: [u8; BYTES]) -> Op {
        let which = if b.is_multiple_of(2) { Which::Current } else { Which::Old(b / 2) };
        let at = [At::Connect, At::Close, At::Complete][usize::from(b) % 3];
        let elsewhere = b % 4 == 3;
        let address = [0, 0, 0, 0, 0, 2, 2, 1][usize::from(b) % 8];
        match kind {
            0..=15 => Op::Insert { name: a, address },
            24..=31 => Op::Find { name: a },
            32..=37 => Op::CloneHandle { handle: a },
            38..=45 => Op::DropHandle { handle: a },
            46..=67 => Op::Lease { handle: a, elsewhere },
            68..=71 => Op::Update { handle: a, address: b % 3 },
            72..=75 => Op::Elect { handle: a },
            76 => Op::FailTicket { ticket: a },
            77 => Op::DropTicket { ticket: a },
            78..=83 => Op::LeaseByName { name: a },
            84..=91 => Op::LeaseById { peer: a },
            92..=109 => Op::DropLease { lease: a, elsewhere },
            110..=115 => Op::Notify {
                lease: a,
                end: [SendEnd::Accepted, SendEnd::Broken, SendEnd::Local, SendEnd::Panic][usize::from(b) % 4],
            },
            116..=127 => Op::Report { handle: a, which },
            128..=130 => Op::ReportLease { lease: a },
            131..=136 => Op::NativeError { name: a },
            137..=140 => Op::LateError { link: a },
            141..=158 => Op::Ready { handle: a },
            159 => Op::ForgetWaiter { waiter: a },
            160..=169 | 201..=203 => Op::Hold { at, name: a },
            170..=179 => Op::Release { at, name: a },
            180..=185 => Op::NextConnect {
                name: a,
                end: [ConnectEnd::Broken, ConnectEnd::Busy, ConnectEnd::Incompatible, ConnectEnd::Panic]
                    [usize::from(b) % 4],
            },
            186..=189 => Op::NextClose {
                name: a,
                end: [CloseEnd::Leaked, CloseEnd::AlreadyGone, CloseEnd::Panic][usize::from(b) % 3],
            },
            190..=191 => Op::Kill { node: a },
            192..=195 => Op::Restart { node: a },
            196..=197 => Op::Revive { node: a },
            198..=200 => Op::Remove { handle: a, within: c },
            204..=207 => Op::RemoveIf { handle: a, which, within: c },
            16..=23 | 208..=211 => Op::Write { lease: a },
            212..=216 => Op::WriteUntil { lease: a, within: c },
            217..=219 => Op::Cancel { transfer: a, within: c },
            220..=223 => Op::Grant { handle: a },
            224..=225 => Op::Revoke { grant: a },
            226 => Op::DropGrant { grant: a },
            227..=228 => Op::Borrow { grant: a, node: b },
            229 => Op::Register,
            230..=231 => Op::Deregister,
            232..=236 => Op::Publish { ticket: a },
            237..=253 => Op::Advance { by: a },
            254 => Op::Renew,
            255 => Op::Shutdown { within: c },
        }
    }
}

/// The `number`-th of `len` things, if there are any.
pub(crate) fn pick(number: u8, len: usize) -> Option<usize> {
    (len > 0).then(|| usize::from(number) % len)
}

/// The Rust code of a test that does it all again, for `tests/model.rs`.
pub(crate) fn code(setup: Setup, ops: &[Op]) -> String {
    let ops: String = ops.iter().map(|op| format!("            {},\n", code_of(op))).collect();
    format!(
        "a test for tests/model.rs:\n\n#[test]\nfn describe_what_went_wrong() {{\n    \
         use op::{{At, CloseEnd, ConnectEnd, Op::*, SendEnd, Which::*}};\n    \
         replay(\n        {setup:?},\n        &[\n{ops}        ],\n    );\n}}\n"
    )
}

/// What `Debug` says, with the types of the fields.
fn code_of(op: &Op) -> String {
    let end = match op {
        Op::Notify { .. } => "SendEnd::",
        Op::NextConnect { .. } => "ConnectEnd::",
        Op::NextClose { .. } => "CloseEnd::",
        _ => "",
    };
    format!("{op:?}").replace(" at: ", " at: At::").replace("end: ", &format!("end: {end}"))
}
