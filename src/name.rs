//! What a peer is called: its name, its local id, its remote boot id.

use crate::error::NameError;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes. It fits one length byte of a handshake frame.
pub const MAX_NAME: usize = 255;

/// The name of a peer: 1 to [`MAX_NAME`] bytes of UTF-8 without control characters. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(Arc<str>);

impl PeerName {
    /// Checks `name` and keeps a copy of it.
    ///
    /// # Errors
    /// [`NameError::Empty`], [`NameError::TooLong`] (more than [`MAX_NAME`] bytes) or [`NameError::Control`] (a control
    /// character, and where). Choose another name; nothing is cut or replaced.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > MAX_NAME {
            return Err(NameError::TooLong { bytes: name.len() });
        }
        if let Some(at) = name.char_indices().find_map(|(at, c)| c.is_control().then_some(at)) {
            return Err(NameError::Control { name: name.escape_debug().to_string(), at });
        }
        Ok(PeerName(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for PeerName {
    type Error = NameError;
    fn try_from(name: &str) -> Result<Self, NameError> {
        PeerName::new(name)
    }
}

impl TryFrom<String> for PeerName {
    type Error = NameError;
    fn try_from(name: String) -> Result<Self, NameError> {
        PeerName::new(&name)
    }
}

impl From<&PeerName> for PeerName {
    fn from(name: &PeerName) -> Self {
        name.clone()
    }
}

impl Borrow<str> for PeerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The REMOTE boot id of a peer: it differs after the peer's restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// A random one, for a process that starts.
    ///
    /// # Panics
    /// If the operating system gives no random bytes, which it does once booted.
    pub fn random() -> Self {
        Incarnation(getrandom::u64().expect("the operating system gives random bytes"))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}

/// A peer in 8 bytes, for message headers and foreign code: an index into the table's slots and the version of the slot
/// it was made for. An id of a removed peer is detected and never reaches the next peer in the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerId {
    pub(crate) index: u32,
    pub(crate) version: u32,
}

impl PeerId {
    /// The id as one number, for a message header or a foreign caller.
    pub fn to_bits(self) -> u64 {
        u64::from(self.version) << 32 | u64::from(self.index)
    }

    /// The id that [`to_bits`](Self::to_bits) gave. Any number is safe: one that names no peer is refused where it is used.
    pub fn from_bits(bits: u64) -> Self {
        PeerId { index: bits as u32, version: (bits >> 32) as u32 }
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId({}v{})", self.index, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_neither_empty_nor_long_nor_has_control_characters() {
        assert_eq!(PeerName::new(""), Err(NameError::Empty));
        assert_eq!(PeerName::new(&"x".repeat(256)), Err(NameError::TooLong { bytes: 256 }));
        assert!(PeerName::new(&"x".repeat(255)).is_ok());
        assert!(matches!(PeerName::new("a\nb"), Err(NameError::Control { at: 1, .. })));
        assert!(matches!(PeerName::new("a\u{85}b"), Err(NameError::Control { at: 1, .. })));
        assert_eq!(PeerName::new("prefill-0 é").unwrap().as_str(), "prefill-0 é");
    }

    #[test]
    fn an_id_survives_its_number() {
        let id = PeerId { index: 7, version: u32::MAX };
        assert_eq!(PeerId::from_bits(id.to_bits()), id);
    }
}
