//! Where a `Tcp` peer listens.

use crate::name::Incarnation;
use crate::transport::Address;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// A host and a port, and the boot id the peer published with them, if it did. The host is resolved at every connect.
///
/// As text `host:port` or `host:port#incarnation`, the incarnation in hexadecimal: `127.0.0.1:7000`, `[::1]:7000`,
/// `prefill-0.local:7000#00000000000000ff`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TcpAddress {
    host_port: Arc<str>,
    incarnation: Option<Incarnation>,
}

/// Why a text is not an address.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text has no host and port.
    #[error("\"{text}\" is not an address; write host:port, like 127.0.0.1:7000")]
    NotHostPort {
        /// The text, escaped.
        text: String,
    },
    /// Nobody can listen on port 0. Use the port that the peer's `local_addr()` says.
    #[error("\"{text}\" names port 0; use the port the peer listens on")]
    PortZero {
        /// The text.
        text: String,
    },
    /// It stands for every address of a machine, so dialled it reaches a process of the dialer's own. Use an address of the
    /// machine the peer runs on.
    #[error("\"{text}\" is no address of one machine; use one that reaches the peer")]
    Wildcard {
        /// The text.
        text: String,
    },
    /// What follows `#` is not an incarnation.
    #[error("\"{text}\": after # comes an incarnation, 1 to 16 hexadecimal digits")]
    NotIncarnation {
        /// The text, escaped.
        text: String,
    },
}

impl TcpAddress {
    /// Checks the form of `host_port`; whether the host exists shows at connect.
    ///
    /// # Errors
    /// [`AddressError::NotHostPort`]: write `host:port`, an IPv6 address in brackets, without `#`.
    /// [`AddressError::PortZero`]: nobody can be reached at port 0.
    /// [`AddressError::Wildcard`]: `0.0.0.0` and `[::]` are for listening.
    pub fn new(host_port: &str) -> Result<Self, AddressError> {
        let not = || AddressError::NotHostPort { text: host_port.escape_debug().to_string() };
        let (host, port) = match host_port.parse::<SocketAddr>() {
            Ok(socket) => (socket.ip().to_string(), socket.port()),
            Err(_) => {
                let (host, port) = host_port.rsplit_once(':').ok_or_else(not)?;
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                (host.to_owned(), port.parse().ok().filter(|_| digits).ok_or_else(not)?)
            }
        };
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '#';
        if host.is_empty() || host.chars().any(odd) || host_port.parse::<SocketAddr>().is_err() && host.contains(':') {
            return Err(not());
        }
        if port == 0 {
            return Err(AddressError::PortZero { text: host_port.to_owned() });
        }
        let address = TcpAddress { host_port: host_port.into(), incarnation: None };
        match address.ip() {
            Some(ip) if ip.is_unspecified() => Err(AddressError::Wildcard { text: host_port.to_owned() }),
            _ => Ok(address),
        }
    }

    /// The host, if it is no name.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.host_port.parse::<SocketAddr>().ok().map(|address| address.ip().to_canonical())
    }

    /// The same place, for one boot of the peer only: an attempt that meets another is undone. For names that a discovery
    /// service publishes with each boot: remove the peer and insert the new address when it says so. A plain address
    /// reconnects to whatever boot answers there.
    #[must_use]
    pub fn with_incarnation(self, incarnation: Incarnation) -> Self {
        TcpAddress { incarnation: Some(incarnation), ..self }
    }

    /// Host and port as they were given.
    pub fn host_port(&self) -> &str {
        &self.host_port
    }
}

impl Address for TcpAddress {
    fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }
}

impl FromStr for TcpAddress {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let Some((host_port, incarnation)) = text.split_once('#') else { return TcpAddress::new(text) };
        let hex = (1..=16).contains(&incarnation.len()) && incarnation.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(incarnation, 16).ok().filter(|_| hex);
        let number = number.ok_or_else(|| AddressError::NotIncarnation { text: text.escape_debug().to_string() })?;
        Ok(TcpAddress::new(host_port)?.with_incarnation(Incarnation(number)))
    }
}

impl From<SocketAddr> for TcpAddress {
    fn from(address: SocketAddr) -> Self {
        TcpAddress { host_port: address.to_string().into(), incarnation: None }
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host_port)?;
        match self.incarnation {
            Some(incarnation) => write!(f, "#{incarnation}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_its_text_says() {
        for text in ["127.0.0.1:7000", "[::1]:65535", "prefill-0.local:1", "127.0.0.1:7000#00000000000000ff"] {
            assert_eq!(text.parse::<TcpAddress>().unwrap().to_string(), text);
        }
        let address: TcpAddress = "h:1#ff".parse().unwrap();
        assert_eq!(address.incarnation(), Some(Incarnation(255)));
        assert_ne!(address, TcpAddress::new("h:1").unwrap());
        assert_eq!(TcpAddress::from("127.0.0.1:9".parse::<SocketAddr>().unwrap()), "127.0.0.1:9".parse().unwrap());
    }

    #[test]
    fn what_is_no_host_and_port_is_refused_and_named() {
        for text in ["", "host", ":1", "host:", "host:65536", "host:+1", "a b:1", "a\n:1", "::1", "a:b:1", "h:-1"] {
            let error = text.parse::<TcpAddress>().unwrap_err();
            assert!(matches!(error, AddressError::NotHostPort { .. }), "{text:?}: {error:?}");
            assert!(!error.to_string().contains('\n'));
        }
        for text in ["0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1", "0.0.0.0:1#ff"] {
            assert!(matches!(text.parse::<TcpAddress>(), Err(AddressError::Wildcard { .. })), "{text}");
        }
        assert!(matches!("h:0".parse::<TcpAddress>(), Err(AddressError::PortZero { .. })));
        for text in ["h:1#", "h:1#xyz", "h:1#+f", "h:1#00000000000000000", "h:1#f#f"] {
            assert!(matches!(text.parse::<TcpAddress>(), Err(AddressError::NotIncarnation { .. })), "{text}");
        }
    }
}
