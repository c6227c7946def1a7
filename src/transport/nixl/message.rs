//! The messages of the `Nixl` transport: what is in each notification of NIXL's that we send.
//!
//! ```text
//! head     version 1 | kind 1 | generation of the dialer 8 | number 8
//!   hello                     incarnation 8 | keys 8 | name length 1 | target length 1 | name | target | metadata   dialer → acceptor
//!   answer   verdict          incarnation 8 | most bytes of a message 4 | name                 acceptor → dialer
//!   notify   sequence         the message                      dialer → acceptor
//!   skip     sequence                                         dialer → acceptor: there is no message of this number
//!   taken    last sequence                                     acceptor → dialer: messages up to it are in the inbox
//!   ping, pong  nonce                                          dialer → acceptor, acceptor → dialer
//!   still                                                      acceptor → dialer: nothing; that it can be sent says that it lives
//!   ask                       (access 1 | transfer 8 | page 40)…       dialer → acceptor: asks for access
//!   go                        (transfer 8 | keys 8 | kind 4 | device 8 | address 8 | page from 8, to 8 | length 4 | metadata)…
//!                                                              acceptor → dialer: it may access the page until it says over
//!   recall                    (transfer 8)…                    acceptor → dialer: it shall say over as soon as it can
//!   refused  transfer         code 1                           acceptor → dialer
//!   over                      (transfer 8)…                    dialer → acceptor: it reads and writes there no more
//!   goodbye  code             last sequence 8, from a dialer   either way: no new message or ask follows; 0: nor is one waited for
//!   bye                                                        acceptor → dialer: it has all that came before the goodbye
//! ```
//! Numbers are little-endian. What has `…` is there as often as there is something to say.

use super::address::VERSION;
use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use crate::transfer::{RemoteSlice, TransferId, TransferKind};

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 1,
    Answer = 2,
    Notify = 3,
    Taken = 4,
    Ping = 5,
    Pong = 6,
    Ask = 7,
    Go = 8,
    Refused = 9,
    Over = 10,
    Goodbye = 11,
    Bye = 12,
    Still = 13,
    Skip = 14,
    Recall = 15,
}

const KINDS: [Kind; 15] = [
    Kind::Hello,
    Kind::Answer,
    Kind::Notify,
    Kind::Taken,
    Kind::Ping,
    Kind::Pong,
    Kind::Ask,
    Kind::Go,
    Kind::Refused,
    Kind::Over,
    Kind::Goodbye,
    Kind::Bye,
    Kind::Still,
    Kind::Skip,
    Kind::Recall,
];

/// What every message begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) generation: Generation,
    pub(super) number: u64,
}

impl Head {
    pub(super) const LEN: usize = 18;

    pub(super) fn new(kind: Kind, generation: Generation, number: u64) -> Self {
        Head { kind, generation, number }
    }

    /// The message, for NIXL, which copies it.
    pub(super) fn with(self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN + body.len());
        bytes.extend_from_slice(&[VERSION, self.kind as u8]);
        bytes.extend_from_slice(&self.generation.0.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// `None`: this is no message of ours.
    pub(super) fn split(mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        let [version, kind] = take(&mut bytes)?;
        let kind = KINDS.into_iter().find(|of| version == VERSION && *of as u8 == kind)?;
        let (generation, number) = (Generation(number(&mut bytes)?), number(&mut bytes)?);
        Some((Head { kind, generation, number }, bytes))
    }
}

/// What a dialer says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello<'a> {
    pub(super) incarnation: Incarnation,
    /// Which of our registrations it knows.
    pub(super) keys: u64,
    pub(super) name: PeerName,
    /// Who it means to reach.
    pub(super) target: PeerName,
    /// How it is answered.
    pub(super) metadata: &'a [u8],
}

impl<'a> Hello<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (name, target) = (self.name.as_str().as_bytes(), self.target.as_str().as_bytes());
        let mut bytes = Vec::with_capacity(18 + name.len() + target.len() + self.metadata.len());
        bytes.extend_from_slice(&self.incarnation.0.to_le_bytes());
        bytes.extend_from_slice(&self.keys.to_le_bytes());
        bytes.extend_from_slice(&[name.len() as u8, target.len() as u8]);
        [name, target, self.metadata].into_iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    pub(super) fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        let (incarnation, keys) = (Incarnation(number(&mut bytes)?), number(&mut bytes)?);
        let [name, target] = take(&mut bytes)?;
        let mut next = |len: u8| {
            let (name, rest) = bytes.split_at_checked(len.into())?;
            bytes = rest;
            PeerName::new(std::str::from_utf8(name).ok()?).ok()
        };
        let (name, target) = (next(name)?, next(target)?);
        Some(Hello { incarnation, keys, name, target, metadata: bytes })
    }
}

/// Whether an acceptor takes a connection. The numbers are those on the wire and never reused.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Messages may follow.
    Welcome = 0,
    /// It has another name than the one that was meant.
    WrongName = 1,
    /// It has a connection of this generation already.
    Duplicate = 2,
    /// It has as many connections as it may.
    Full = 3,
}

/// What an acceptor says to a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) incarnation: Incarnation,
    pub(super) max_notification: u32,
    pub(super) name: PeerName,
}

impl Answer {
    /// For the number of its head, and the body.
    pub(super) fn encode(&self) -> (u64, Vec<u8>) {
        let mut bytes = self.incarnation.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.max_notification.to_le_bytes());
        bytes.extend_from_slice(self.name.as_str().as_bytes());
        (self.verdict as u64, bytes)
    }

    pub(super) fn decode(verdict: u64, mut bytes: &[u8]) -> Option<Self> {
        let all = [Verdict::Welcome, Verdict::WrongName, Verdict::Duplicate, Verdict::Full];
        let verdict = all.into_iter().find(|of| *of as u64 == verdict)?;
        let incarnation = Incarnation(number(&mut bytes)?);
        let max_notification = u32::from_le_bytes(take(&mut bytes)?);
        let name = PeerName::new(std::str::from_utf8(bytes).ok()?).ok()?;
        Some(Answer { verdict, incarnation, max_notification, name })
    }
}

/// Why a peer ended a connection. The numbers are those on the wire and never reused.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Farewell {
    /// It gave no reason that this version knows.
    Other = 0,
    /// It removed us, or dropped the connection.
    Removed = 1,
    /// It shuts down.
    Shutdown = 2,
    /// It does not know the connection: it has ended there without a word.
    Unknown = 3,
}

impl Farewell {
    pub(super) fn from_code(code: u64) -> Self {
        let all = [Farewell::Removed, Farewell::Shutdown, Farewell::Unknown];
        all.into_iter().find(|of| *of as u64 == code).unwrap_or(Farewell::Other)
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Farewell::Removed => "ended the connection",
            Farewell::Shutdown => "shuts down",
            Farewell::Unknown => "does not know the connection any more",
            Farewell::Other => "said goodbye",
        }
    }
}

/// What is asked of the owner of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) kind: TransferKind,
    pub(super) transfer: TransferId,
    pub(super) page: RemoteSlice,
}

impl Ask {
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.kind == TransferKind::Write));
        into.extend_from_slice(&self.transfer.0.to_le_bytes());
        into.extend_from_slice(&self.page.to_bytes());
    }

    /// The first of these bytes; `None`: they hold no whole one. They are shorter afterwards.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let kind = match take(bytes)? {
            [0] => TransferKind::Read,
            [1] => TransferKind::Write,
            _ => return None,
        };
        let transfer = TransferId(number(bytes)?);
        Some(Ask { kind, transfer, page: RemoteSlice::from_bytes(&take(bytes)?) })
    }
}

/// The permission to access a page: where it is, and NIXL's keys to it if the dialer has not got them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Go {
    pub(super) transfer: TransferId,
    /// The registrations that must be known for it.
    pub(super) keys: u64,
    /// NIXL's number of what memory it is.
    pub(super) kind: u32,
    pub(super) device: u64,
    pub(super) address: u64,
    /// The whole page that was lent, by where it begins and ends in its region.
    pub(super) from: u64,
    pub(super) to: u64,
    /// All of them; empty if they were told before.
    pub(super) metadata: Vec<u8>,
}

impl Go {
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.transfer.0.to_le_bytes());
        into.extend_from_slice(&self.keys.to_le_bytes());
        into.extend_from_slice(&self.kind.to_le_bytes());
        into.extend_from_slice(&self.device.to_le_bytes());
        for number in [self.address, self.from, self.to] {
            into.extend_from_slice(&number.to_le_bytes());
        }
        into.extend_from_slice(&(self.metadata.len() as u32).to_le_bytes());
        into.extend_from_slice(&self.metadata);
    }

    /// As [`Ask::decode`].
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (transfer, keys) = (TransferId(number(bytes)?), number(bytes)?);
        let kind = u32::from_le_bytes(take(bytes)?);
        let (device, address) = (number(bytes)?, number(bytes)?);
        let (from, to) = (number(bytes)?, number(bytes)?);
        let len = u32::from_le_bytes(take(bytes)?) as usize;
        let (metadata, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        Some(Go { transfer, keys, kind, device, address, from, to, metadata: metadata.to_vec() })
    }
}

/// For over and recall.
pub(super) fn encode_transfers(transfers: &[TransferId]) -> Vec<u8> {
    transfers.iter().flat_map(|transfer| transfer.0.to_le_bytes()).collect()
}

/// As [`Ask::decode`].
pub(super) fn decode_transfer(bytes: &mut &[u8]) -> Option<TransferId> {
    number(bytes).map(TransferId)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn take<const LEN: usize>(bytes: &mut &[u8]) -> Option<[u8; LEN]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_with_its_body_and_nothing_else_is_a_message() {
        for kind in KINDS {
            let head = Head::new(kind, Generation(u64::MAX - 1), 7);
            assert_eq!(Head::split(&head.with(b"body")), Some((head, &b"body"[..])));
        }
        let bytes = Head::new(Kind::Bye, Generation(1), 1).with(&[]);
        assert_eq!(Head::split(&bytes[..17]), None);
        for (version, kind) in [(VERSION, 0), (VERSION, 16), (VERSION, 255), (0, 1), (VERSION + 1, 1)] {
            assert_eq!(Head::split(&[&[version, kind], &bytes[2..]].concat()), None);
        }
    }

    #[test]
    fn what_is_said_at_the_beginning_comes_back_and_is_bounded_by_its_names() {
        let [name, target] = ["a", "prefill-0"].map(|name| PeerName::new(name).unwrap());
        let hello = Hello { incarnation: Incarnation(1), keys: 2, name: name.clone(), target, metadata: b"metadata" };
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        for len in 0..28 {
            assert_eq!(Hello::decode(&bytes[..len]), None, "{len} bytes");
        }
        let answer = Answer { verdict: Verdict::Full, incarnation: Incarnation(1), max_notification: 9, name };
        let (verdict, bytes) = answer.encode();
        assert_eq!(Answer::decode(verdict, &bytes), Some(answer));
        assert_eq!((Answer::decode(9, &bytes), Answer::decode(0, &bytes[..12])), (None, None));
        let codes = [0, 1, 2, 3, 99].map(Farewell::from_code);
        let other = Farewell::Other;
        assert_eq!(codes, [other, Farewell::Removed, Farewell::Shutdown, Farewell::Unknown, other]);
    }

    #[test]
    fn what_is_said_often_is_read_one_by_one_and_to_its_end() {
        let page = RemoteSlice::from_bytes(&[3; RemoteSlice::ENCODED]);
        let transfer = TransferId(u64::MAX - 7);
        let asks = [TransferKind::Read, TransferKind::Write].map(|kind| Ask { kind, transfer, page });
        let mut bytes = Vec::new();
        asks.iter().for_each(|ask| ask.encode(&mut bytes));
        let mut rest = &bytes[..];
        assert_eq!([Ask::decode(&mut rest), Ask::decode(&mut rest)], asks.map(Some));
        assert!(rest.is_empty());
        assert_eq!(Ask::decode(&mut &bytes[..48]), None);
        bytes[0] = 2;
        assert_eq!(Ask::decode(&mut &bytes[..]), None);

        let with = |metadata: &[u8]| Go {
            transfer,
            keys: 1,
            kind: 1,
            device: 7,
            address: u64::MAX - 1,
            from: 3,
            to: 5,
            metadata: metadata.to_vec(),
        };
        let goes = [with(b"keys"), with(&[])];
        let mut bytes = Vec::new();
        goes.iter().for_each(|go| go.encode(&mut bytes));
        let mut rest = &bytes[..];
        assert_eq!([Go::decode(&mut rest), Go::decode(&mut rest)], goes.map(Some));
        assert!(rest.is_empty());
        assert_eq!(Go::decode(&mut &bytes[..42]), None, "its keys are cut short");

        let bytes = encode_transfers(&[TransferId(1), transfer]);
        let mut rest = &bytes[..];
        assert_eq!([decode_transfer(&mut rest), decode_transfer(&mut rest)], [Some(TransferId(1)), Some(transfer)]);
        assert_eq!(decode_transfer(&mut &bytes[..7]), None);
    }
}
