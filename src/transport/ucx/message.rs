//! The messages of the `Ucx` transport: what is in the header of each active message, and what may follow it.
//!
//! ```text
//! head     kind 1 | generation of the dialer 8 | number 8
//!   hello, answer             a handshake of `frame`           dialer → acceptor, acceptor → dialer
//!   notify   sequence         the message                      dialer → acceptor
//!   taken    last sequence                                     acceptor → dialer: messages up to it are in the inbox
//!   ping, pong  nonce                                          dialer → acceptor, acceptor → dialer
//!   write, read  transfer     page 40                          dialer → acceptor: asks for access
//!   go       transfer         address 8 | key                  acceptor → dialer: the dialer may read or write there
//!   refused  transfer         code 1                           acceptor → dialer
//!   over     transfer                                          dialer → acceptor: it reads and writes there no more
//!   goodbye  code                                              either way: the last message of who sends it
//!   bye                                                        acceptor → dialer: it has all that came before the goodbye
//! ```
//! Numbers are little-endian.

use crate::state::Generation;

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
    Write = 7,
    Read = 8,
    Go = 9,
    Refused = 10,
    Over = 11,
    Goodbye = 12,
    Bye = 13,
}

const KINDS: [Kind; 13] = [
    Kind::Hello,
    Kind::Answer,
    Kind::Notify,
    Kind::Taken,
    Kind::Ping,
    Kind::Pong,
    Kind::Write,
    Kind::Read,
    Kind::Go,
    Kind::Refused,
    Kind::Over,
    Kind::Goodbye,
    Kind::Bye,
];

/// What every message begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) generation: Generation,
    pub(super) number: u64,
}

impl Head {
    pub(super) const LEN: usize = 17;

    pub(super) fn new(kind: Kind, generation: Generation, number: u64) -> Self {
        Head { kind, generation, number }
    }

    pub(super) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.kind as u8;
        bytes[1..9].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[9..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// `None`: these are no bytes of a head.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Some(Head { kind, generation: Generation(number(1)), number: number(9) })
    }
}

/// The permission to access a page: where it is, and the key to it.
pub(super) fn encode_go(address: u64, key: &[u8]) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend_from_slice(key);
    bytes
}

pub(super) fn decode_go(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (address, key) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*address), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_and_nothing_else_is_a_head() {
        for kind in KINDS {
            let head = Head::new(kind, Generation(u64::MAX - 1), 7);
            assert_eq!(Head::decode(&head.encode()), Some(head));
        }
        let mut bytes = Head::new(Kind::Bye, Generation(1), 1).encode();
        assert_eq!(Head::decode(&bytes[1..]), None);
        for kind in [0, 14, 255] {
            bytes[0] = kind;
            assert_eq!(Head::decode(&bytes), None);
        }
    }

    #[test]
    fn a_go_names_its_address_and_key() {
        assert_eq!(decode_go(&encode_go(7, b"key")), Some((7, &b"key"[..])));
        assert_eq!(decode_go(&[0; 7]), None);
    }
}
