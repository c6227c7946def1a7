//! What a process publishes so that others can reach it: its name, its boot id, NIXL's metadata, and the memory that it offers.
//!
//! ```text
//! magic 4 | version 1 | incarnation 8 | keys 8 | name length 1, name | regions 4 | (region 8 | kind 4 | device 8 | address 8 | length 8)…
//! | metadata length 4, metadata | sum 8, of all before it
//! ```
//! Numbers are little-endian; nothing follows. NIXL trusts what is in metadata, so take an address only from who you trust.

use super::native::{Memory, MemoryKind};
use crate::name::{Incarnation, MAX_NAME, PeerName};
use crate::region::RegionId;
use crate::transport::Address;
use std::fmt;
use std::sync::Arc;

const MAGIC: [u8; 4] = *b"PNXL";
/// The version of the bytes, and of the messages that follow.
pub(super) const VERSION: u8 = 1;
/// The most bytes of NIXL's metadata, some hundred for each region.
pub(super) const MAX_METADATA: usize = 16 << 20;
/// The most regions that an address names.
const MAX_REGIONS: usize = 64 * 1024;
const REGION: usize = 36;

/// Where a `Nixl` peer is, as it was when [`Nixl::local_address`](super::Nixl::local_address) made it. It names one boot of the
/// peer: after its restart, or when NIXL's metadata is another, [`update`](crate::PeerTable::update) the peer to its new one.
/// Clones share it.
///
/// Publish [`to_bytes`](Self::to_bytes) where peers look; they read it with [`from_bytes`](Self::from_bytes).
#[derive(Clone, PartialEq, Eq)]
pub struct NixlAddress(Arc<Published>);

#[derive(PartialEq, Eq)]
struct Published {
    name: PeerName,
    incarnation: Incarnation,
    keys: u64,
    memory: Vec<OfferedMemory>,
    metadata: Vec<u8>,
}

/// Memory that a peer offers: what its grants may name.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferedMemory {
    /// The peer's region.
    pub region: RegionId,
    /// NIXL's number of what kind it is: 0 is DRAM, 1 is VRAM.
    pub kind: u32,
    /// Which GPU; 0 for DRAM.
    pub device: u64,
    /// Where it is, in the peer's process or on its device.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl OfferedMemory {
    pub(super) fn new(region: RegionId, memory: Memory) -> Self {
        let Memory { kind: MemoryKind(kind), address, len, device } = memory;
        OfferedMemory { region, kind, device, address: address as u64, len: len as u64 }
    }
}

/// Why bytes are no address.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NixlAddressError {
    /// They are something else.
    #[error("these bytes are no address of a `Nixl` peer")]
    Magic,
    /// Run the same version of the library on both sides.
    #[error("an address of version {theirs}, this process reads {VERSION}")]
    Version {
        /// The version that was named.
        theirs: u8,
    },
    /// They end too early, or go on after the end.
    #[error("the address is cut short, or something follows it")]
    Length,
    /// They were changed on their way. Publish them again, or as bytes.
    #[error("the address was damaged on its way")]
    Damaged,
    /// The name in it is not one.
    #[error("the name in the address is not valid")]
    Name,
    /// It names more than any address may.
    #[error("the address names {given} {what}, the most is {max}")]
    TooMany {
        /// Regions, or bytes of metadata.
        what: &'static str,
        /// What was named.
        given: usize,
        /// The most.
        max: usize,
    },
}

impl NixlAddress {
    pub(super) fn new(
        name: PeerName,
        incarnation: Incarnation,
        keys: u64,
        memory: Vec<OfferedMemory>,
        metadata: Vec<u8>,
    ) -> Self {
        NixlAddress(Arc::new(Published { name, incarnation, keys, memory, metadata }))
    }

    /// What the peer calls itself; a table must know it by this name.
    pub fn name(&self) -> &PeerName {
        &self.0.name
    }

    /// The memory that it offered when the address was made. What it registers later is told when it is lent.
    pub fn memory(&self) -> &[OfferedMemory] {
        &self.0.memory
    }

    /// NIXL's own part: what other agents load.
    pub fn metadata(&self) -> &[u8] {
        &self.0.metadata
    }

    /// Which registrations are in it: grows with each.
    pub(super) fn keys(&self) -> u64 {
        self.0.keys
    }

    /// The bytes to publish.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Published { name, incarnation, keys, memory, metadata } = &*self.0;
        let mut bytes = Vec::with_capacity(64 + name.as_str().len() + memory.len() * REGION + metadata.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.push(VERSION);
        bytes.extend_from_slice(&incarnation.0.to_le_bytes());
        bytes.extend_from_slice(&keys.to_le_bytes());
        bytes.push(name.as_str().len() as u8);
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(&(memory.len() as u32).to_le_bytes());
        for OfferedMemory { region, kind, device, address, len } in memory {
            bytes.extend_from_slice(&region.0.to_le_bytes());
            bytes.extend_from_slice(&kind.to_le_bytes());
            [device, address, len].into_iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        bytes.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
        bytes.extend_from_slice(metadata);
        let sum = sum_of(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) made. Any bytes are safe to read. A sum finds what was damaged on its way: of damaged
    /// metadata UCX may die when the peer is connected (`address.c`, of NIXL 1.5.1). It is no protection from malice.
    ///
    /// # Errors
    /// [`NixlAddressError`]: they are none, are damaged, or are of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NixlAddressError> {
        let mut rest = bytes;
        let magic: Option<[u8; 4]> = take(&mut rest);
        if magic != Some(MAGIC) {
            return Err(NixlAddressError::Magic);
        }
        let [version] = take(&mut rest).ok_or(NixlAddressError::Length)?;
        if version != VERSION {
            return Err(NixlAddressError::Version { theirs: version });
        }
        let incarnation = Incarnation(number(&mut rest)?);
        let keys = number(&mut rest)?;
        let [len] = take(&mut rest).ok_or(NixlAddressError::Length)?;
        const { assert!(MAX_NAME <= u8::MAX as usize) };
        let name = std::str::from_utf8(part(&mut rest, len.into())?).ok();
        let name = name.and_then(|name| PeerName::new(name).ok()).ok_or(NixlAddressError::Name)?;
        let regions = count(&mut rest, "regions", MAX_REGIONS)?;
        let mut memory = Vec::with_capacity(regions.min(rest.len() / REGION));
        for _ in 0..regions {
            let region = RegionId(number(&mut rest)?);
            let kind = u32::from_le_bytes(take(&mut rest).ok_or(NixlAddressError::Length)?);
            let (device, address, len) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
            memory.push(OfferedMemory { region, kind, device, address, len });
        }
        let metadata = count(&mut rest, "bytes of metadata", MAX_METADATA)?;
        let metadata = part(&mut rest, metadata)?.to_vec();
        let sum = number(&mut rest)?;
        if !rest.is_empty() {
            return Err(NixlAddressError::Length);
        }
        if sum != sum_of(&bytes[..bytes.len() - size_of::<u64>()]) {
            return Err(NixlAddressError::Damaged);
        }
        Ok(NixlAddress::new(name, incarnation, keys, memory, metadata))
    }
}

/// FNV-1a, of 64 bits: any one byte that is another makes another sum.
fn sum_of(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    bytes.iter().fold(BASIS, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME))
}

fn take<const LEN: usize>(rest: &mut &[u8]) -> Option<[u8; LEN]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn number(rest: &mut &[u8]) -> Result<u64, NixlAddressError> {
    take(rest).map(u64::from_le_bytes).ok_or(NixlAddressError::Length)
}

fn count(rest: &mut &[u8], what: &'static str, max: usize) -> Result<usize, NixlAddressError> {
    let given = take(rest).map(u32::from_le_bytes).ok_or(NixlAddressError::Length)? as usize;
    if given > max { Err(NixlAddressError::TooMany { what, given, max }) } else { Ok(given) }
}

fn part<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], NixlAddressError> {
    let (part, after) = rest.split_at_checked(len).ok_or(NixlAddressError::Length)?;
    *rest = after;
    Ok(part)
}

impl Address for NixlAddress {
    fn incarnation(&self) -> Option<Incarnation> {
        Some(self.0.incarnation)
    }
}

impl fmt::Display for NixlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nixl:{}#{}", self.0.name, self.0.incarnation)
    }
}

impl fmt::Debug for NixlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Published { name, incarnation, memory, metadata, .. } = &*self.0;
        f.debug_struct("NixlAddress")
            .field("name", name)
            .field("incarnation", incarnation)
            .field("regions", &memory.len())
            .field("metadata_bytes", &metadata.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> NixlAddress {
        let vram = Memory { kind: MemoryKind(1), address: 1 << 40, len: 99, device: 3 };
        let memory = vec![OfferedMemory::new(RegionId(7), vram), OfferedMemory::new(RegionId(8), vram)];
        NixlAddress::new(PeerName::new("prefill-0").unwrap(), Incarnation(255), 5, memory, vec![1, 2, 3])
    }

    #[test]
    fn an_address_comes_back_from_its_bytes_with_the_kind_and_the_device_of_its_memory() {
        let back = NixlAddress::from_bytes(&address().to_bytes()).unwrap();
        assert_eq!(back, address());
        assert_eq!((back.keys(), back.metadata(), back.incarnation()), (5, &[1, 2, 3][..], Some(Incarnation(255))));
        assert_eq!((back.memory()[0].kind, back.memory()[0].device), (1, 3));
        assert_eq!(back.to_string(), "nixl:prefill-0#00000000000000ff");
    }

    #[test]
    fn a_bit_that_is_another_is_found() {
        let bytes = address().to_bytes();
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(NixlAddress::from_bytes(&damaged).is_err(), "bit {bit}");
        }
        let in_metadata = bytes.len() - 9;
        let damaged = [&bytes[..in_metadata], &[!bytes[in_metadata]], &bytes[in_metadata + 1..]].concat();
        assert_eq!(NixlAddress::from_bytes(&damaged), Err(NixlAddressError::Damaged));
    }

    #[test]
    fn bytes_that_are_cut_short_or_go_on_or_are_of_something_else_are_refused() {
        let bytes = address().to_bytes();
        for len in 4..bytes.len() {
            assert_eq!(NixlAddress::from_bytes(&bytes[..len]), Err(NixlAddressError::Length), "{len} bytes");
        }
        let with = |at: usize, byte| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            NixlAddress::from_bytes(&bytes).unwrap_err()
        };
        assert_eq!(NixlAddress::from_bytes(&[&bytes[..], &[0]].concat()), Err(NixlAddressError::Length));
        assert_eq!(NixlAddress::from_bytes(b"nix"), Err(NixlAddressError::Magic));
        assert_eq!(with(0, b'Q'), NixlAddressError::Magic);
        assert_eq!(with(4, 2), NixlAddressError::Version { theirs: 2 });
        assert_eq!(with(21, 0), NixlAddressError::Name);
        assert_eq!(with(22, 0xff), NixlAddressError::Name);
        assert!(matches!(with(34, 1), NixlAddressError::TooMany { what: "regions", .. }));
        let metadata_len = bytes.len() - 12;
        assert!(matches!(with(metadata_len, 0xff), NixlAddressError::TooMany { what: "bytes of metadata", .. }));
    }
}
