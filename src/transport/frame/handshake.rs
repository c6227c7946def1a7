//! What is said before the first frame: a dialer's hello, an acceptor's answers, and the proofs of a shared secret between them.

use super::{Decoded, FrameError, MAGIC, VERSION, number};
use crate::name::{Incarnation, MAX_NAME, PeerName};
use crate::state::Generation;

/// The longest hello, in bytes.
pub const HELLO_MAX: usize = HELLO_FIXED + TOKEN + 2 * MAX_NAME;
/// The longest answer, in bytes.
pub const ANSWER_MAX: usize = ANSWER_FIXED + TOKEN + MAX_NAME;
/// Bytes of a nonce or a proof.
pub const TOKEN: usize = 32;

pub(super) const HELLO_FIXED: usize = 29;
const ANSWER_FIXED: usize = 25;

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
