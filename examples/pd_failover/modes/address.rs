//! Where a process is: at a port, or wherever what it has published says.

#[cfg(feature = "nixl")]
use peerage::transport::nixl::NixlAddress;
use peerage::transport::tcp::TcpAddress;
use peerage::{Address, Incarnation};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WireAddress {
    Tcp(TcpAddress),
    #[cfg(feature = "nixl")]
    Nixl(NixlAddress),
}

impl WireAddress {
    /// The whole of it, for a line.
    pub(crate) fn to_text(&self) -> String {
        match self {
            WireAddress::Tcp(address) => address.to_string(),
            #[cfg(feature = "nixl")]
            WireAddress::Nixl(address) => {
                let bytes = address.to_bytes();
                bytes.iter().fold("nixl=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
            }
        }
    }
}

impl FromStr for WireAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[cfg(feature = "nixl")]
        if let Some(hex) = text.strip_prefix("nixl=") {
            let byte = |at| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
            let address = NixlAddress::from_bytes(&bytes.ok_or("no bytes in hex")?);
            return address.map(WireAddress::Nixl).map_err(|error| error.to_string());
        }
        text.parse().map(WireAddress::Tcp).map_err(|error| format!("{error}"))
    }
}

impl Address for WireAddress {
    fn incarnation(&self) -> Option<Incarnation> {
        match self {
            WireAddress::Tcp(address) => address.incarnation(),
            #[cfg(feature = "nixl")]
            WireAddress::Nixl(address) => address.incarnation(),
        }
    }
}

impl fmt::Display for WireAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireAddress::Tcp(address) => address.fmt(f),
            #[cfg(feature = "nixl")]
            WireAddress::Nixl(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_line() {
        for text in ["127.0.0.1:7000", "127.0.0.1:7000#00000000000000ff"] {
            assert_eq!(text.parse::<WireAddress>().unwrap().to_text(), text);
        }
        for text in ["", "nixl=", "nixl=5", "nixl=zz", "nixl=00"] {
            assert!(text.parse::<WireAddress>().is_err(), "{text}");
        }
    }
}
