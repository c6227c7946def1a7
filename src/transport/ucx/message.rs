//! The messages of the `Ucx` transport: what is in the header of each active message, and what may follow it.
//!
//! ```text
//! head     kind 1 | generation of the dialer 8 | number 8 | offset 8, 0 for all but pages
//!   hello, answer             a handshake of `frame`           dialer → acceptor, acceptor → dialer
//!   notify   sequence         the message                      dialer → acceptor
//!   taken    last sequence                                     acceptor → dialer: messages up to it are in the inbox
//!   ping, pong  nonce                                          dialer → acceptor, acceptor → dialer
//!   ask                       (access 1 | transfer 8 | page 40)…       dialer → acceptor: asks for access
//!   go                        (transfer 8 | address 8 | length 2 | key)…  acceptor → dialer: it may read or write there
//!   page     transfer         bytes at the offset              who has them → who asked or was asked: where nothing is one-sided
//!   landed                    (transfer 8)…                    acceptor → dialer: all that was written is in its page
//!   refused  transfer         code 1                           acceptor → dialer
//!   over                      (transfer 8)…                    dialer → acceptor: it reads and writes there no more
//!   goodbye  code             last sequence 8, from a dialer   either way: no new message or ask follows, and what runs goes on
//!   bye                                                        acceptor → dialer: it has all that came before the goodbye
//! ```
//! Numbers are little-endian. What has `…` is there as often as there is something to say: transfers that run at the same time
//! share their messages.

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
    Page = 13,
    Landed = 14,
}

const KINDS: [Kind; 14] = [
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
    Kind::Page,
    Kind::Landed,
];

/// What every message begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) generation: Generation,
    pub(super) number: u64,
    pub(super) offset: u64,
}

impl Head {
    pub(super) const LEN: usize = 25;

    pub(super) fn new(kind: Kind, generation: Generation, number: u64) -> Self {
        Head { kind, generation, number, offset: 0 }
    }

    pub(super) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.kind as u8;
        bytes[1..9].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.number.to_le_bytes());
        bytes[17..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// `None`: these are no bytes of a head.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Some(Head { kind, generation: Generation(number(1)), number: number(9), offset: number(17) })
    }
}

/// What is asked of the owner of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) kind: TransferKind,
    /// The asker reads and writes by itself. Otherwise the bytes come as messages.
    pub(super) one_sided: bool,
    pub(super) transfer: TransferId,
    pub(super) page: RemoteSlice,
}

impl Ask {
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.kind == TransferKind::Write) | u8::from(self.one_sided) << 1);
        into.extend_from_slice(&self.transfer.0.to_le_bytes());
        into.extend_from_slice(&self.page.to_bytes());
    }

    /// The first of these bytes; `None`: they hold no whole one. They are shorter afterwards.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let [access] = take(bytes)?;
        let (kind, one_sided) = match access {
            0 | 2 => (TransferKind::Read, access == 2),
            1 | 3 => (TransferKind::Write, access == 3),
            _ => return None,
        };
        let transfer = TransferId(u64::from_le_bytes(take(bytes)?));
        Some(Ask { kind, one_sided, transfer, page: RemoteSlice::from_bytes(&take(bytes)?) })
    }
}

/// The permission to access a page: where it is, and the key to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Go<'a> {
    pub(super) transfer: TransferId,
    pub(super) address: u64,
    pub(super) key: &'a [u8],
}

impl<'a> Go<'a> {
    /// Keys are some hundred bytes at most: a few for each device.
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.transfer.0.to_le_bytes());
        into.extend_from_slice(&self.address.to_le_bytes());
        into.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        into.extend_from_slice(self.key);
    }

    /// As [`Ask::decode`].
    pub(super) fn decode(bytes: &mut &'a [u8]) -> Option<Self> {
        let transfer = TransferId(u64::from_le_bytes(take(bytes)?));
        let address = u64::from_le_bytes(take(bytes)?);
        let key = usize::from(u16::from_le_bytes(take(bytes)?));
        let (key, rest) = bytes.split_at_checked(key)?;
        *bytes = rest;
        Some(Go { transfer, address, key })
    }
}

/// For over and landed.
pub(super) fn encode_transfers(transfers: &[TransferId]) -> Vec<u8> {
    transfers.iter().flat_map(|transfer| transfer.0.to_le_bytes()).collect()
}

/// As [`Ask::decode`].
pub(super) fn decode_transfer(bytes: &mut &[u8]) -> Option<TransferId> {
    take(bytes).map(|transfer| TransferId(u64::from_le_bytes(transfer)))
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
    fn every_kind_comes_back_and_nothing_else_is_a_head() {
        for kind in KINDS {
            let head = Head { offset: 1 << 40, ..Head::new(kind, Generation(u64::MAX - 1), 7) };
            assert_eq!(Head::decode(&head.encode()), Some(head));
        }
        let mut bytes = Head::new(Kind::Bye, Generation(1), 1).encode();
        assert_eq!(Head::decode(&bytes[1..]), None);
        for kind in [0, 15, 255] {
            bytes[0] = kind;
            assert_eq!(Head::decode(&bytes), None);
        }
    }

    #[test]
    fn what_is_said_often_is_read_one_by_one_and_to_its_end() {
        let page = RemoteSlice::from_bytes(&[3; RemoteSlice::ENCODED]);
        let kinds = [TransferKind::Read, TransferKind::Write].map(|kind| [(kind, false), (kind, true)]).concat();
        let transfer = TransferId(u64::MAX - 7);
        let asks: Vec<_> = kinds.iter().map(|&(kind, one_sided)| Ask { kind, one_sided, transfer, page }).collect();
        let mut bytes = Vec::new();
        asks.iter().for_each(|ask| ask.encode(&mut bytes));
        let mut rest = &bytes[..];
        assert!(asks.iter().all(|ask| Ask::decode(&mut rest) == Some(*ask)));
        assert!(rest.is_empty());
        assert_eq!(Ask::decode(&mut &bytes[..48]), None);
        bytes[0] = 4;
        assert_eq!(Ask::decode(&mut &bytes[..]), None);

        let go = Go { transfer: TransferId(9), address: u64::MAX - 1, key: b"key" };
        let mut bytes = Vec::new();
        go.encode(&mut bytes);
        go.encode(&mut bytes);
        let mut rest = &bytes[..];
        assert_eq!([Go::decode(&mut rest), Go::decode(&mut rest)], [Some(go); 2]);
        assert!(rest.is_empty());
        assert_eq!(Go::decode(&mut &bytes[..20]), None, "its key is cut short");

        let bytes = encode_transfers(&[TransferId(1), TransferId(u64::MAX)]);
        let mut rest = &bytes[..];
        assert_eq!(
            (decode_transfer(&mut rest), decode_transfer(&mut rest)),
            (Some(TransferId(1)), Some(TransferId(u64::MAX)))
        );
        assert_eq!(decode_transfer(&mut &bytes[..7]), None);
    }
}
