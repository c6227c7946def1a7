//! Whose fault an error is: the peer's, this process's, or nobody's for long.

use super::TcpError;
use crate::name::PeerName;
use crate::transport::limits::{FULL_RETRY, QUEUE_RETRY};
use crate::transport::{ErrorClass, TransportError};
use socket2::{Domain, Socket, Type};
use std::io;
use std::sync::Arc;

impl TcpError {
    /// No socket was opened, or its host was not found.
    pub(in crate::transport::tcp) fn not_opened(
        peer: PeerName,
        address: Arc<str>,
        source: io::Error,
        unresolvable: bool,
    ) -> Self {
        let source = if unresolvable { what_the_resolver_lacked().unwrap_or(source) } else { source };
        match () {
            () if is_local(&source) => TcpError::NoSocket { peer, address, source },
            () if unresolvable => TcpError::Unresolvable { peer, address, source },
            () => TcpError::Unreachable { peer, address, source },
        }
    }
}

impl TransportError for TcpError {
    fn class(&self) -> ErrorClass {
        match self {
            TcpError::NoSocket { .. }
            | TcpError::TooLong { .. }
            | TcpError::Length { .. }
            | TcpError::NotRegistered { .. }
            | TcpError::UsedAfterFork(_) => ErrorClass::Local,
            TcpError::QueueFull { .. } => ErrorClass::Busy { retry_after: QUEUE_RETRY },
            TcpError::Full { .. } => ErrorClass::Busy { retry_after: FULL_RETRY },
            TcpError::Incompatible { .. }
            | TcpError::VersionRefused { .. }
            | TcpError::WrongName { .. }
            | TcpError::SecretMissing { .. }
            | TcpError::SecretUnused { .. }
            | TcpError::WrongSecret { .. }
            | TcpError::Unproven { .. }
            | TcpError::Wildcard { .. }
            | TcpError::NotLoopback { .. } => ErrorClass::Incompatible,
            _ => ErrorClass::PeerBroken,
        }
    }

    fn process_is_gone(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
        match self {
            TcpError::Unreachable { source, .. } | TcpError::Broken { source, .. } => {
                matches!(source.kind(), ConnectionRefused | ConnectionReset | BrokenPipe)
            }
            TcpError::Ended { source: Some(source), .. } => source.process_is_gone(),
            _ => false,
        }
    }

    fn native_code(&self) -> Option<i64> {
        match self {
            TcpError::Unresolvable { source, .. }
            | TcpError::Unreachable { source, .. }
            | TcpError::NoSocket { source, .. }
            | TcpError::Broken { source, .. } => source.raw_os_error().map(i64::from),
            TcpError::Ended { source: Some(source), .. } => source.native_code(),
            _ => None,
        }
    }
}

/// The C library's resolver opens files and sockets, and where it can't it says that there is no such host. Then every host is
/// unknown, and no peer is at fault.
pub(in crate::transport) fn what_the_resolver_lacked() -> Option<io::Error> {
    what_is_lacking(1)
}

/// Why this side can't have so many sockets at once.
pub(in crate::transport) fn what_is_lacking(sockets: usize) -> Option<io::Error> {
    let held: io::Result<Vec<_>> = (0..sockets).map(|_| Socket::new(Domain::IPV4, Type::DGRAM, None)).collect();
    held.err().filter(is_local)
}

/// Whether an error of the operating system says that this side has run out of something. Every peer waits then, so nothing
/// that one peer's address can bring about is among them. `EADDRNOTAVAIL` is not: it says that no address of this machine
/// reaches that one, or that the ports towards it are used up. Ports are taken per destination, so that too stays with the
/// peer, whose own backoff spares them.
fn is_local(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    error.kind() == io::ErrorKind::OutOfMemory || matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Generation;

    fn peer() -> PeerName {
        PeerName::new("prefill-0").unwrap()
    }

    #[test]
    fn a_class_says_whose_fault_it_is() {
        let (peer, address): (_, Arc<str>) = (peer(), "127.0.0.1:1".into());
        let reset = TcpError::Broken {
            peer: peer.clone(),
            address: address.clone(),
            source: io::Error::from_raw_os_error(104),
        };
        assert_eq!((reset.class(), reset.native_code()), (ErrorClass::PeerBroken, Some(104)));
        let ended = TcpError::Ended { peer: peer.clone(), generation: Generation(3), source: Some(Arc::new(reset)) };
        assert_eq!((ended.class(), ended.native_code()), (ErrorClass::PeerBroken, Some(104)));
        assert!(ended.process_is_gone());
        let full = TcpError::QueueFull { peer: peer.clone(), limit: 1 };
        assert!(matches!(full.class(), ErrorClass::Busy { .. }) && !full.process_is_gone());
        let name = TcpError::WrongName { actual: peer.clone(), peer, address };
        assert_eq!((name.class(), name.native_code()), (ErrorClass::Incompatible, None));
        assert!(is_local(&io::Error::from_raw_os_error(24)) && !is_local(&io::Error::from_raw_os_error(111)));
    }

    #[test]
    fn an_address_that_this_machine_has_no_source_for_is_that_peers_fault_alone() {
        const EADDRNOTAVAIL: i32 = 99;
        let source = io::Error::from_raw_os_error(EADDRNOTAVAIL);
        assert_eq!(source.kind(), io::ErrorKind::AddrNotAvailable);
        let error = TcpError::not_opened(peer(), "[2001:db8::1]:7000".into(), source, false);
        assert_eq!((error.class(), error.native_code()), (ErrorClass::PeerBroken, Some(99)));
        for out_of in [12, 23, 24, 105] {
            let source = io::Error::from_raw_os_error(out_of);
            let error = TcpError::not_opened(peer(), "127.0.0.1:7000".into(), source, false);
            assert_eq!(error.class(), ErrorClass::Local, "{error:?}");
        }
    }
}
