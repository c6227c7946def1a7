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

use crate::grant::Refusal;
use crate::name::{Incarnation, MAX_NAME, PeerName};
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
/// The longest hello, in bytes.
pub const HELLO_MAX: usize = HELLO_FIXED + TOKEN + 2 * MAX_NAME;
/// The longest answer, in bytes.
pub const ANSWER_MAX: usize = ANSWER_FIXED + TOKEN + MAX_NAME;
/// Bytes of a nonce or a proof.
pub const TOKEN: usize = 32;

const HELLO_FIXED: usize = 29;
const ANSWER_FIXED: usize = 25;
const NUMBER: usize = 8;

/// What a dialer says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Its own name.
    pub name: PeerName,
    /// Its boot id.
    pub incarnation: Incarnation,
    /// Its generation of this connection.
    pub generation: Generation,
    /// The name it means to reach.
    pub target: PeerName,
    /// Never used before: the dialer has a shared secret, and wants proof that the acceptor has it too.
    pub nonce: Option<[u8; TOKEN]>,
}

/// What an acceptor says to a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Taken, or why not.
    pub verdict: Verdict,
    /// The acceptor's own name.
    pub name: PeerName,
    /// Its boot id.
    pub incarnation: Incarnation,
    /// The most bytes of one notification it takes.
    pub max_notification: u32,
    /// Of a challenge: a nonce, never used before. Of an answer to a proof: the acceptor's own proof.
    pub token: Option<[u8; TOKEN]>,
}

/// Whether an acceptor takes a connection. The numbers are those on the wire and never reused.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Frames may follow.
    Welcome = 0,
    /// It speaks another version: the one in its answer.
    WrongVersion = 1,
    /// It has another name than the hello's target.
    WrongName = 2,
    /// It has a connection of this name, incarnation and generation already.
    Duplicate = 3,
    /// It has as many connections, or undelivered messages, as it may.
    Full = 4,
    /// Prove that you know the secret; another answer follows the proof.
    Challenge = 5,
    /// It takes only who shares its secret, and the hello named no nonce.
    SecretMissing = 6,
    /// It has no secret, and the hello asks for proof of one.
    SecretUnused = 7,
    /// The proof does not prove its secret.
    WrongSecret = 8,
}

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

/// Why bytes are not of this protocol. The connection they came over is of no more use.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something else talks on this port.
    #[error("does not speak the peerage protocol")]
    Magic,
    /// Run the same version of the library on both sides.
    #[error("speaks protocol version {theirs}, this process speaks {VERSION}")]
    Version {
        /// The version that was named.
        theirs: u16,
    },
    /// A nonce or a token is neither there nor not there.
    #[error("{flag} is neither 0 nor 1")]
    Flag {
        /// What was sent.
        flag: u8,
    },
    /// A name in a handshake is not one.
    #[error("a name in the handshake is not valid")]
    Name,
    /// An answer has a code this version does not know.
    #[error("unknown handshake code {code}")]
    Verdict {
        /// The code.
        code: u8,
    },
    /// The frame belongs to another connection.
    #[error("a frame of {theirs} on the connection of {ours}")]
    Generation {
        /// The frame's.
        theirs: Generation,
        /// The connection's.
        ours: Generation,
    },
    /// The body is longer or shorter than its kind allows.
    #[error("a frame of kind {kind} with {len} bytes, {min} to {max} are allowed")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// What its header claims.
        len: u32,
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
    /// An ack has a code this version does not know.
    #[error("unknown refusal {code}")]
    Refusal {
        /// The code.
        code: u8,
    },
}

impl Hello {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.generation.0.to_le_bytes());
        out.push(name_len(&self.name));
        out.push(name_len(&self.target));
        encode_token(self.nonce.as_ref(), out);
        out.extend_from_slice(self.name.as_str().as_bytes());
        out.extend_from_slice(self.target.as_str().as_bytes());
    }

    /// Reads one from the start of `bytes`. Wrong bytes are refused as soon as they are seen.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::Version`], [`FrameError::Flag`] or [`FrameError::Name`]: no bytes that follow
    /// can make it a hello. Close the connection; after `Version`, answer [`Verdict::WrongVersion`] first.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FrameError> {
        preamble(bytes)?;
        let Some(fixed) = bytes.get(..HELLO_FIXED) else { return Ok(Decoded::Need(HELLO_FIXED)) };
        let (name, target) = (usize::from(fixed[26]), usize::from(fixed[27]));
        let names_at = HELLO_FIXED + token_len(fixed[28])?;
        let total = names_at + name + target;
        let Some(names) = bytes.get(names_at..total) else { return Ok(Decoded::Need(total)) };
        let hello = Hello {
            incarnation: Incarnation(number(fixed, 10)),
            generation: Generation(number(fixed, 18)),
            name: decode_name(&names[..name])?,
            target: decode_name(&names[name..])?,
            nonce: decode_token(&bytes[HELLO_FIXED..names_at]),
        };
        Ok(Decoded::Frame(hello, total))
    }
}

impl Answer {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.push(self.verdict as u8);
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.max_notification.to_le_bytes());
        out.push(name_len(&self.name));
        encode_token(self.token.as_ref(), out);
        out.extend_from_slice(self.name.as_str().as_bytes());
    }

    /// Reads one from the start of `bytes`. Wrong bytes are refused as soon as they are seen.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::Version`], [`FrameError::Flag`], [`FrameError::Verdict`] or [`FrameError::Name`]:
    /// no bytes that follow can make it an answer. Close the connection.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FrameError> {
        preamble(bytes)?;
        let Some(fixed) = bytes.get(..ANSWER_FIXED) else { return Ok(Decoded::Need(ANSWER_FIXED)) };
        let name_at = ANSWER_FIXED + token_len(fixed[24])?;
        let total = name_at + usize::from(fixed[23]);
        let Some(name) = bytes.get(name_at..total) else { return Ok(Decoded::Need(total)) };
        let answer = Answer {
            verdict: Verdict::from_code(fixed[10]).ok_or(FrameError::Verdict { code: fixed[10] })?,
            incarnation: Incarnation(number(fixed, 11)),
            max_notification: u32::from_le_bytes([fixed[19], fixed[20], fixed[21], fixed[22]]),
            name: decode_name(name)?,
            token: decode_token(&bytes[ANSWER_FIXED..name_at]),
        };
        Ok(Decoded::Frame(answer, total))
    }
}

impl Verdict {
    /// The verdict with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        [
            Self::Welcome,
            Self::WrongVersion,
            Self::WrongName,
            Self::Duplicate,
            Self::Full,
            Self::Challenge,
            Self::SecretMissing,
            Self::SecretUnused,
            Self::WrongSecret,
        ]
        .into_iter()
        .find(|verdict| *verdict as u8 == code)
    }
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

/// Checks as much of magic and version as has arrived.
fn preamble(bytes: &[u8]) -> Result<(), FrameError> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(FrameError::Magic);
    }
    match bytes.get(8..10) {
        Some(version) if version != VERSION.to_le_bytes() => {
            Err(FrameError::Version { theirs: u16::from_le_bytes([version[0], version[1]]) })
        }
        _ => Ok(()),
    }
}

fn name_len(name: &PeerName) -> u8 {
    u8::try_from(name.as_str().len()).expect("a name has at most MAX_NAME = 255 bytes")
}

fn decode_name(bytes: &[u8]) -> Result<PeerName, FrameError> {
    let text = std::str::from_utf8(bytes).map_err(|_| FrameError::Name)?;
    PeerName::new(text).map_err(|_| FrameError::Name)
}

fn encode_token(token: Option<&[u8; TOKEN]>, out: &mut Vec<u8>) {
    out.push(u8::from(token.is_some()));
    out.extend_from_slice(token.map_or(&[], |token| &token[..]));
}

fn token_len(flag: u8) -> Result<usize, FrameError> {
    match flag {
        0 => Ok(0),
        1 => Ok(TOKEN),
        flag => Err(FrameError::Flag { flag }),
    }
}

/// What is between the fixed part and the names: nothing, or a token.
fn decode_token(bytes: &[u8]) -> Option<[u8; TOKEN]> {
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
