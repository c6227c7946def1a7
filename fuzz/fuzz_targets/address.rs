//! What comes as text or in a message from elsewhere: addresses, names, remote pages, ids. Anything is safe, and what is
//! accepted means the same after a trip through its text or bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage::transport::tcp::TcpAddress;
use peerage::{Address, PeerId, PeerName, Refusal, RemoteSlice};

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        address(text);
        name(text);
    }
    if let Some((bytes, rest)) = input.split_first_chunk() {
        page(bytes, rest);
    }
    if let Some((bits, _)) = input.split_first_chunk() {
        let bits = u64::from_le_bytes(*bits);
        assert_eq!(PeerId::from_bits(bits).to_bits(), bits);
    }
    if let [code, ..] = input {
        assert!(Refusal::from_code(*code).is_none_or(|refusal| refusal as u8 == *code));
    }
});

fn address(text: &str) {
    match text.parse::<TcpAddress>() {
        Ok(address) => {
            assert_eq!(address.to_string().parse(), Ok(address.clone()), "{text:?}");
            let bare = TcpAddress::new(address.host_port()).expect("the part before # is an address");
            let again = address.incarnation().map_or(bare.clone(), |incarnation| bare.with_incarnation(incarnation));
            assert_eq!(again, address);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "one line in a log: {error}"),
    }
}

fn name(text: &str) {
    match PeerName::new(text) {
        Ok(name) => {
            assert_eq!(name.as_str(), text);
            assert!((1..=peerage::MAX_NAME).contains(&text.len()) && !text.chars().any(char::is_control));
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "one line in a log: {error}"),
    }
}

fn page(bytes: &[u8; RemoteSlice::ENCODED], rest: &[u8]) {
    let page = RemoteSlice::from_bytes(bytes);
    assert_eq!(page.to_bytes(), *bytes);
    let number = |at: usize| rest.get(at..at + 8).map(|n| u64::from_le_bytes(n.try_into().expect("eight bytes")));
    let (Some(offset), Some(len)) = (number(0), number(8)) else { return };
    if let Some(part) = page.slice(offset, len) {
        assert!(u128::from(offset) + u128::from(len) <= u128::from(page.len));
        assert_eq!((part.grant, part.region, part.len), (page.grant, page.region, len));
        assert_eq!(u128::from(part.offset), u128::from(page.offset) + u128::from(offset));
    }
}
