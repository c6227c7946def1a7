//! The wire of the `Tcp` transport as a pure codec: bytes in, frames out, no I/O, no clock.
//!
//! Whatever decodes here came from outside. No input panics, nothing is allocated, lengths are checked before they are
//! believed, and a decoder never asks for more than [`Codec::max_frame`] or [`HELLO_MAX`] bytes.
//!
//! ```text
//! hello     magic 8 | version 2 | incarnation 8 | generation 8 | name length 1 | target length 1 | has nonce 1
//!           | nonce 0 or 32 | name | target                  dialer → acceptor
//! answer    magic 8 | version 2 | code 1 | incarnation 8 | max notification 4 | name length 1 | has token 1
//!           | token 0 or 32 | name                           acceptor → dialer
//! proof     32                                               dialer → acceptor, after an answer that is a challenge
//! frame     body length 4 | kind 1 | generation 8 | body
//!   notify  sequence 8 | message                            dialer → acceptor
//!   write   transfer 8 | page 40                            dialer → acceptor, then its bytes as write data
//!   read    transfer 8 | page 40                            dialer → acceptor
//!   ping    nonce 8                                         either way
//!   cancel  transfer 8                                      dialer → acceptor: it gives up a write or a read
//!   write data, read data   transfer 8 | 1 to CHUNK bytes   dialer → acceptor, acceptor → dialer
//!   ack     transfer 8 | code 1                             acceptor → dialer: a write or a read is over
//!   pong    nonce 8                                         either way
//!   goodbye code 1                                          either way: the last frame of who sends it
//! ```
//! Numbers are little-endian. Magic and version keep their places in every version, so that two versions can tell each
//! other apart. A frame of an unknown kind is skipped, so a peer may send kinds that are new. Each frame repeats the dialer's
//! generation: bytes that were meant for another connection never count.
//!
//! With a shared secret a handshake is `hello, challenge, proof, answer`; without one it is `hello, answer`. A nonce or a
//! token is there exactly if the handshake has come to it, so each message has one encoding.

mod error;
mod handshake;

pub use error::FrameError;
pub use handshake::{ANSWER_MAX, Answer, HELLO_MAX, Hello, TOKEN, Verdict};

use crate::grant::Refusal;
use crate::state::Generation;
use crate::transfer::{RemoteSlice, TransferId};
use std::fmt;

/// The version this library speaks. Two processes must speak the same one.
pub const VERSION: u16 = 2;
/// The first bytes of every connection, in both directions.
pub const MAGIC: [u8; 8] = *b"peerage\x01";
/// The most bytes of a transfer in one frame.
pub const CHUNK: usize = 64 * 1024;
/// Bytes of a frame before its body.
pub const HEADER: usize = 13;
const NUMBER: usize = 8;

/// One message of an open connection. Borrows its bytes from the buffer it was decoded from.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message for the inbox.
    Notify {
        /// Grows with each message of the connection.
        sequence: u64,
        /// The message.
        message: &'a [u8],
    },
    /// A remote write begins; `page.len` bytes of write data follow.
    Write {
        /// The dialer's number for it.
        transfer: TransferId,
        /// Where the bytes go.
        page: RemoteSlice,
    },
    /// The next bytes of a write.
    WriteData {
        /// Which.
        transfer: TransferId,
        /// The bytes, at least one.
        bytes: &'a [u8],
    },
    /// Asks for the bytes of a page.
    Read {
        /// The dialer's number for it.
        transfer: TransferId,
        /// Where the bytes are.
        page: RemoteSlice,
    },
    /// The next bytes of a read.
    ReadData {
        /// Which.
        transfer: TransferId,
        /// The bytes, at least one.
        bytes: &'a [u8],
    },
    /// A write or a read is over.
    Ack {
        /// Which.
        transfer: TransferId,
        /// Done, or why the owner of the page refused.
        refusal: Option<Refusal>,
    },
    /// The dialer gives up a write or a read: it sends no more data of it, and wants none. An ack follows, of the cancel or
    /// of the transfer's own end if that came first.
    Cancel {
        /// Which.
        transfer: TransferId,
    },
    /// Asks for a pong.
    Ping(u64),
    /// Answers a ping.
    Pong(u64),
    /// The sender ends the connection, and sends nothing more.
    Goodbye {
        /// Why: see [`Farewell::from_code`].
        code: u8,
    },
    /// Something this version has no name for. To be skipped.
    Unknown {
        /// The kind it has.
        kind: u8,
        /// What it says.
        body: &'a [u8],
    },
}

/// Why one side ends a connection. The numbers are those on the wire and never reused.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Farewell {
    /// For a reason this version has no name for.
    Other = 0,
    /// It shuts down.
    Shutdown = 1,
    /// It has no more use for the other side, or for this connection.
    Removed = 2,
    /// It found the connection broken.
    Failed = 3,
}

impl Farewell {
    /// The farewell with this number; [`Other`](Self::Other) if there is none.
    pub fn from_code(code: u8) -> Self {
        [Self::Shutdown, Self::Removed, Self::Failed]
            .into_iter()
            .find(|farewell| *farewell as u8 == code)
            .unwrap_or(Self::Other)
    }
}

impl fmt::Display for Farewell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Farewell::Shutdown => "shut down",
            Farewell::Removed => "dropped the connection",
            Farewell::Failed => "found the connection broken",
            Farewell::Other => "said goodbye",
        })
    }
}

/// What a decoder made of the bytes it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<T> {
    /// Not enough: show it at least this many, counted from the same start.
    Need(usize),
    /// One message, and how many bytes it took.
    Frame(T, usize),
}

/// The frames of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Codec {
    generation: Generation,
    max_notification: usize,
}

impl Codec {
    /// For the connection with this generation of its dialer; notifications have at most `max_notification` bytes.
    pub const fn new(generation: Generation, max_notification: usize) -> Self {
        Codec { generation, max_notification }
    }

    /// The longest frame, in bytes.
    pub const fn max_frame(&self) -> usize {
        let longest = if self.max_notification > CHUNK { self.max_notification } else { CHUNK };
        (HEADER + NUMBER).saturating_add(longest)
    }

    /// Reads one frame from the start of `bytes`. A header is checked as soon as it is there, before its body comes.
    ///
    /// # Errors
    /// [`FrameError::Generation`], [`FrameError::Length`] or [`FrameError::Refusal`]: where the next
    /// frame begins can't be told any more. Close the connection.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Decoded<Frame<'a>>, FrameError> {
        match self.measure(bytes)? {
            Some(total) if total <= bytes.len() => Ok(Decoded::Frame(parse(&bytes[..total])?, total)),
            Some(total) => Ok(Decoded::Need(total)),
            None => Ok(Decoded::Need(HEADER)),
        }
    }

    /// Bytes of the frame whose header `bytes` starts with; `None` if the header is not whole yet.
    fn measure(&self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some(header) = bytes.get(..HEADER) else { return Ok(None) };
        let (len, kind) = (u32::from_le_bytes([header[0], header[1], header[2], header[3]]), header[4]);
        let (min, max) = match kind {
            kind::NOTIFY => (NUMBER, self.max_notification.saturating_add(NUMBER)),
            kind::WRITE | kind::READ => (NUMBER + RemoteSlice::ENCODED, NUMBER + RemoteSlice::ENCODED),
            kind::WRITE_DATA | kind::READ_DATA => (NUMBER + 1, NUMBER + CHUNK),
            kind::ACK => (NUMBER + 1, NUMBER + 1),
            kind::PING | kind::PONG => (NUMBER, NUMBER),
            kind::GOODBYE => (1, 1),
            kind::CANCEL => (NUMBER, NUMBER),
            _ => (0, self.max_frame() - HEADER),
        };
        let theirs = Generation(number(header, 5));
        if theirs != self.generation {
            return Err(FrameError::Generation { theirs, ours: self.generation });
        }
        let body = usize::try_from(len).ok().filter(|body| (min..=max).contains(body));
        let body = body.ok_or(FrameError::Length { kind, len, min, max })?;
        Ok(Some(HEADER.saturating_add(body)))
    }

    /// Appends one frame. Its sender has checked a notification's length.
    ///
    /// # Panics
    /// If a body has 4 GiB or more.
    pub fn encode(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let number = |out: &mut Vec<u8>, number: u64| out.extend_from_slice(&number.to_le_bytes());
        match *frame {
            Frame::Notify { sequence, message } => {
                self.header(kind::NOTIFY, NUMBER + message.len(), out);
                number(out, sequence);
                out.extend_from_slice(message);
            }
            Frame::Write { transfer, page } | Frame::Read { transfer, page } => {
                let kind = if matches!(frame, Frame::Write { .. }) { kind::WRITE } else { kind::READ };
                self.header(kind, NUMBER + RemoteSlice::ENCODED, out);
                number(out, transfer.0);
                out.extend_from_slice(&page.to_bytes());
            }
            Frame::WriteData { transfer, bytes } => {
                self.begin_data(Direction::Write, transfer, bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Frame::ReadData { transfer, bytes } => {
                self.begin_data(Direction::Read, transfer, bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Frame::Ack { transfer, refusal } => {
                self.header(kind::ACK, NUMBER + 1, out);
                number(out, transfer.0);
                out.push(refusal.map_or(0, |refusal| refusal as u8));
            }
            Frame::Ping(nonce) | Frame::Pong(nonce) => {
                self.header(if matches!(frame, Frame::Ping(_)) { kind::PING } else { kind::PONG }, NUMBER, out);
                number(out, nonce);
            }
            Frame::Cancel { transfer } => {
                self.header(kind::CANCEL, NUMBER, out);
                number(out, transfer.0);
            }
            Frame::Goodbye { code } => {
                self.header(kind::GOODBYE, 1, out);
                out.push(code);
            }
            Frame::Unknown { kind, body } => {
                self.header(kind, body.len(), out);
                out.extend_from_slice(body);
            }
        }
    }

    /// Appends a data frame up to its bytes; the caller appends exactly `len` of them, 1 to [`CHUNK`].
    pub fn begin_data(&self, direction: Direction, transfer: TransferId, len: usize, out: &mut Vec<u8>) {
        debug_assert!((1..=CHUNK).contains(&len), "a data frame has 1 to CHUNK bytes");
        let kind = if direction == Direction::Write { kind::WRITE_DATA } else { kind::READ_DATA };
        self.header(kind, NUMBER + len, out);
        out.extend_from_slice(&transfer.0.to_le_bytes());
    }

    fn header(&self, kind: u8, body: usize, out: &mut Vec<u8>) {
        let len = u32::try_from(body).expect("bodies are below 4 GiB");
        out.extend_from_slice(&len.to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&self.generation.0.to_le_bytes());
    }
}

/// Which kind of transfer a data frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Dialer to acceptor.
    Write,
    /// Acceptor to dialer.
    Read,
}

/// The numbers on the wire; never reused.
mod kind {
    pub(super) const NOTIFY: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const WRITE_DATA: u8 = 3;
    pub(super) const READ: u8 = 4;
    pub(super) const READ_DATA: u8 = 5;
    pub(super) const ACK: u8 = 6;
    pub(super) const PING: u8 = 7;
    pub(super) const PONG: u8 = 8;
    pub(super) const GOODBYE: u8 = 9;
    pub(super) const CANCEL: u8 = 10;
}

/// Takes a frame that `measure` found whole and of the right length for its kind.
fn parse(frame: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (kind, body) = (frame[4], &frame[HEADER..]);
    match kind {
        kind::GOODBYE => return Ok(Frame::Goodbye { code: body[0] }),
        kind::NOTIFY..=kind::CANCEL => {}
        kind => return Ok(Frame::Unknown { kind, body }),
    }
    let (first, rest) = (number(body, 0), &body[NUMBER..]);
    let transfer = TransferId(first);
    Ok(match kind {
        kind::NOTIFY => Frame::Notify { sequence: first, message: rest },
        kind::WRITE => Frame::Write { transfer, page: page(rest) },
        kind::READ => Frame::Read { transfer, page: page(rest) },
        kind::WRITE_DATA => Frame::WriteData { transfer, bytes: rest },
        kind::READ_DATA => Frame::ReadData { transfer, bytes: rest },
        kind::ACK => Frame::Ack { transfer, refusal: refusal(rest[0])? },
        kind::CANCEL => Frame::Cancel { transfer },
        kind::PING => Frame::Ping(first),
        _ => Frame::Pong(first),
    })
}

fn refusal(code: u8) -> Result<Option<Refusal>, FrameError> {
    match code {
        0 => Ok(None),
        code => Refusal::from_code(code).map(Some).ok_or(FrameError::Refusal { code }),
    }
}

fn page(bytes: &[u8]) -> RemoteSlice {
    RemoteSlice::from_bytes(bytes.try_into().expect("`measure` checked the length of this kind"))
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + NUMBER].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::handshake::HELLO_FIXED;
    use super::*;
    use crate::name::{Incarnation, MAX_NAME, PeerName};

    const CODEC: Codec = Codec::new(Generation(7), 1000);

    fn page() -> RemoteSlice {
        RemoteSlice { grant: u128::MAX / 3, region: 1, offset: u64::MAX, len: 20 }
    }

    fn frames() -> Vec<Frame<'static>> {
        let transfer = TransferId(u64::MAX - 1);
        vec![
            Frame::Notify { sequence: 1, message: b"" },
            Frame::Notify { sequence: u64::MAX, message: b"pages ready" },
            Frame::Write { transfer, page: page() },
            Frame::WriteData { transfer, bytes: &[9; CHUNK] },
            Frame::Read { transfer, page: page() },
            Frame::ReadData { transfer, bytes: b"x" },
            Frame::Ack { transfer, refusal: None },
            Frame::Ack { transfer, refusal: Some(Refusal::Revoked) },
            Frame::Ack { transfer, refusal: Some(Refusal::Cancelled) },
            Frame::Cancel { transfer },
            Frame::Ping(3),
            Frame::Pong(u64::MAX),
            Frame::Goodbye { code: Farewell::Shutdown as u8 },
            Frame::Goodbye { code: 200 },
            Frame::Unknown { kind: 0, body: b"" },
            Frame::Unknown { kind: 255, body: &[1; NUMBER + CHUNK] },
        ]
    }

    fn encoded(frame: &Frame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        CODEC.encode(frame, &mut out);
        out
    }

    fn hello() -> Hello {
        Hello {
            name: PeerName::new("decode-0").unwrap(),
            incarnation: Incarnation(5),
            generation: Generation(7),
            target: PeerName::new(&"é".repeat(127)).unwrap(),
            nonce: None,
        }
    }

    fn answer(verdict: Verdict) -> Answer {
        let token = (verdict == Verdict::Challenge).then_some([7; TOKEN]);
        Answer { verdict, name: hello().target, incarnation: Incarnation(u64::MAX), max_notification: 65536, token }
    }

    /// Shows `decode` ever more of `bytes`, and checks that it asks for no more than there is and moves forward.
    fn drip<T: PartialEq + std::fmt::Debug>(
        bytes: &[u8],
        mut decode: impl FnMut(usize) -> Result<Decoded<T>, FrameError>,
    ) -> T {
        let mut shown = 0;
        loop {
            match decode(shown).unwrap() {
                Decoded::Need(more) => {
                    assert!(more > shown && more <= bytes.len(), "{shown} shown, {more} asked, {} there", bytes.len());
                    shown += 1;
                }
                Decoded::Frame(frame, used) => {
                    assert_eq!((shown, used), (bytes.len(), bytes.len()));
                    return frame;
                }
            }
        }
    }

    #[test]
    fn every_frame_survives_the_wire_in_pieces_of_one_byte() {
        for frame in frames() {
            let bytes = encoded(&frame);
            assert!(bytes.len() <= CODEC.max_frame());
            assert_eq!(drip(&bytes, |shown| CODEC.decode(&bytes[..shown])), frame);
        }
    }

    #[test]
    fn the_bytes_of_version_2_are_those_of_the_head_of_this_file() {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let [name, target] = ["d", "p0"].map(|name| PeerName::new(name).unwrap());
        let (incarnation, generation) = (Incarnation(0x100), Generation(7));
        let mut bytes = Vec::new();
        Hello { name: name.clone(), incarnation, generation, target, nonce: None }.encode(&mut bytes);
        assert_eq!(
            text(&bytes),
            r"peerage\x01\x02\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00dp0"
        );
        bytes.clear();
        Answer { verdict: Verdict::Full, name, incarnation, max_notification: 9 << 24, token: None }.encode(&mut bytes);
        assert_eq!(text(&bytes), r"peerage\x01\x02\x00\x04\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\t\x01\x00d");
        let kinds: Vec<_> = frames().iter().map(|frame| encoded(frame)[4]).collect();
        assert_eq!(kinds, [1, 1, 2, 3, 4, 5, 6, 6, 6, 10, 7, 8, 9, 9, 0, 255]);
        let ack = encoded(&Frame::Ack { transfer: TransferId(5), refusal: Some(Refusal::Revoked) });
        assert_eq!(
            text(&ack),
            r"\t\x00\x00\x00\x06\x07\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x07"
        );
        assert_eq!(CHUNK, 65_536);
    }

    #[test]
    fn the_longest_handshake_has_exactly_the_most_bytes() {
        let name = PeerName::new(&"n".repeat(MAX_NAME)).unwrap();
        let (mut greeting, mut bytes) = (Vec::new(), Vec::new());
        Hello { name: name.clone(), target: name.clone(), nonce: Some([1; TOKEN]), ..hello() }.encode(&mut greeting);
        Answer { name, token: Some([2; TOKEN]), ..answer(Verdict::Full) }.encode(&mut bytes);
        assert_eq!((greeting.len(), bytes.len()), (HELLO_MAX, ANSWER_MAX));
    }

    #[test]
    fn the_longest_frame_is_a_chunk_or_a_notification() {
        let longest = |max_notification| Codec::new(Generation(7), max_notification).max_frame();
        let chunk = encoded(&Frame::ReadData { transfer: TransferId(1), bytes: &[9; CHUNK] }).len();
        assert_eq!((longest(0), longest(1_000), longest(CHUNK)), (chunk, chunk, chunk));
        assert_eq!(longest(CHUNK + 1), chunk + 1, "a notification has its sequence where a chunk has its transfer");
        assert_eq!(longest(usize::MAX), usize::MAX, "a limit that does not bound anything is not an overflow");
    }

    #[test]
    fn frames_back_to_back_are_taken_one_by_one() {
        let mut bytes = Vec::new();
        frames().iter().for_each(|frame| CODEC.encode(frame, &mut bytes));
        let mut at = 0;
        for frame in frames() {
            let Ok(Decoded::Frame(next, used)) = CODEC.decode(&bytes[at..]) else { panic!("no frame at {at}") };
            assert_eq!(next, frame);
            at += used;
        }
        assert_eq!(at, bytes.len());
    }

    #[test]
    fn handshakes_survive_the_wire_in_pieces_of_one_byte() {
        for nonce in [None, Some([0; TOKEN]), Some([0xff; TOKEN])] {
            let (mut bytes, hello) = (Vec::new(), Hello { nonce, ..hello() });
            hello.encode(&mut bytes);
            assert!(bytes.len() <= HELLO_MAX);
            assert_eq!(drip(&bytes, |shown| Hello::decode(&bytes[..shown])), hello);
        }
        for code in 0..=8 {
            let answer = answer(Verdict::from_code(code).unwrap());
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            assert!(bytes.len() <= ANSWER_MAX);
            assert_eq!(drip(&bytes, |shown| Answer::decode(&bytes[..shown])), answer);
        }
    }

    #[test]
    fn a_length_is_refused_before_its_body_comes() {
        for (frame, len) in [
            (Frame::Notify { sequence: 1, message: b"" }, 1009),
            (Frame::Notify { sequence: 1, message: b"" }, 7),
            (Frame::Notify { sequence: 1, message: b"" }, u32::MAX),
            (Frame::Unknown { kind: 99, body: b"" }, 8 + CHUNK as u32 + 1),
            (Frame::Write { transfer: TransferId(1), page: page() }, 47),
            (Frame::Read { transfer: TransferId(1), page: page() }, 49),
            (Frame::WriteData { transfer: TransferId(1), bytes: b"x" }, 8),
            (Frame::ReadData { transfer: TransferId(1), bytes: b"x" }, 8 + CHUNK as u32 + 1),
            (Frame::Ack { transfer: TransferId(1), refusal: None }, 8),
            (Frame::Ping(1), 0),
        ] {
            let mut bytes = encoded(&frame);
            bytes[..4].copy_from_slice(&u32::to_le_bytes(len));
            let refused = CODEC.decode(&bytes[..HEADER]);
            assert!(
                matches!(refused, Err(FrameError::Length { len: seen, .. }) if seen == len),
                "{frame:?}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_frame_of_another_generation_is_refused() {
        let mut bytes = Vec::new();
        Codec::new(Generation(8), 1000).encode(&Frame::Ping(1), &mut bytes);
        let refused = CODEC.decode(&bytes).unwrap_err();
        assert_eq!(refused, FrameError::Generation { theirs: Generation(8), ours: Generation(7) });
    }

    #[test]
    fn unknown_numbers_are_refused() {
        let mut bytes = encoded(&Frame::Ack { transfer: TransferId(1), refusal: None });
        *bytes.last_mut().unwrap() = 200;
        assert_eq!(CODEC.decode(&bytes), Err(FrameError::Refusal { code: 200 }));
        let mut bytes = Vec::new();
        answer(Verdict::Full).encode(&mut bytes);
        bytes[10] = 77;
        assert_eq!(Answer::decode(&bytes), Err(FrameError::Verdict { code: 77 }));
    }

    #[test]
    fn a_stranger_is_refused_at_its_first_wrong_byte() {
        assert_eq!(Hello::decode(b"G"), Err(FrameError::Magic));
        assert_eq!(Hello::decode(b"peerages"), Err(FrameError::Magic));
        assert_eq!(Answer::decode(b"HTTP/1.1 400 Bad Request"), Err(FrameError::Magic));
        let mut bytes = Vec::new();
        hello().encode(&mut bytes);
        bytes[28] = 2;
        assert_eq!(Hello::decode(&bytes), Err(FrameError::Flag { flag: 2 }));
        bytes[8] = 1;
        assert_eq!(Hello::decode(&bytes[..10]), Err(FrameError::Version { theirs: 1 }));
    }

    #[test]
    fn names_in_a_handshake_are_checked_like_any_name() {
        let mut bytes = Vec::new();
        hello().encode(&mut bytes);
        for wrong in [b'\n', 0xff] {
            let mut bytes = bytes.clone();
            bytes[HELLO_FIXED] = wrong;
            assert_eq!(Hello::decode(&bytes), Err(FrameError::Name));
        }
        let mut empty = bytes[..HELLO_FIXED].to_vec();
        empty[26..28].fill(0);
        assert_eq!(Hello::decode(&empty), Err(FrameError::Name));
    }

    #[test]
    fn no_bytes_panic_and_none_make_it_ask_for_more_than_a_frame() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let good: Vec<_> = frames().iter().map(encoded).collect();
        for round in 0..200_000 {
            let mut bytes = good[round % good.len()].clone();
            bytes.truncate(80);
            for _ in 0..random() % 4 {
                let at = random() as usize % bytes.len();
                bytes[at] = random() as u8;
            }
            if let Ok(Decoded::Need(more)) = CODEC.decode(&bytes) {
                assert!(more > bytes.len() && more <= CODEC.max_frame());
            }
            let mut greeting = Vec::new();
            hello().encode(&mut greeting);
            let at = random() as usize % greeting.len();
            greeting[at] = random() as u8;
            greeting.truncate(random() as usize % (greeting.len() + 1));
            if let Ok(Decoded::Need(more)) = Hello::decode(&greeting) {
                assert!(more > greeting.len() && more <= HELLO_MAX);
            }
            if let Ok(Decoded::Need(more)) = Answer::decode(&greeting) {
                assert!(more > greeting.len() && more <= ANSWER_MAX);
            }
        }
    }

    #[test]
    fn a_farewell_is_known_by_its_number_and_a_new_one_is_a_farewell_all_the_same() {
        use Farewell::{Failed, Other, Removed, Shutdown};
        let known = [Other, Shutdown, Removed, Failed];
        for farewell in known {
            assert_eq!(Farewell::from_code(farewell as u8), farewell);
        }
        assert_eq!([4, 200, 255].map(Farewell::from_code), [Other; 3]);
        let said: std::collections::HashSet<_> = known.map(|farewell| farewell.to_string()).into_iter().collect();
        assert_eq!(said.len(), known.len(), "each reads differently: {said:?}");
    }
}
