//! What processes say to each other, as notifications.

use peerage::RemoteSlice;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// The `nth` of one thread over one connection.
    Note { thread: u64, nth: u64 },
    /// Write this block into my page.
    Lend { request: u64, block: u64, page: RemoteSlice },
    /// The page is written, or will not be.
    Over { request: u64, block: u64, written: bool },
}

impl Message {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let numbers = |tag: u8, numbers: &[u64]| {
            let mut bytes = vec![tag];
            numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            bytes
        };
        match self {
            Message::Note { thread, nth } => numbers(1, &[*thread, *nth]),
            Message::Lend { request, block, page } => {
                let mut bytes = numbers(2, &[*request, *block]);
                bytes.extend(page.to_bytes());
                bytes
            }
            Message::Over { request, block, written: true } => numbers(3, &[*request, *block]),
            Message::Over { request, block, written: false } => numbers(4, &[*request, *block]),
        }
    }

    /// `None`: not one of ours.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, mut rest) = bytes.split_first()?;
        let mut number = || {
            let (number, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_le_bytes(*number))
        };
        let message = match tag {
            1 => Message::Note { thread: number()?, nth: number()? },
            2 => {
                let (request, block) = (number()?, number()?);
                let (page, after) = rest.split_first_chunk()?;
                rest = after;
                Message::Lend { request, block, page: RemoteSlice::from_bytes(page) }
            }
            3 | 4 => Message::Over { request: number()?, block: number()?, written: *tag == 3 },
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

#[test]
fn every_message_survives_the_wire_and_nothing_else_does() {
    let page = RemoteSlice { grant: 1 << 100, region: 2, offset: 3, len: 4 };
    for message in [
        Message::Note { thread: 1, nth: u64::MAX },
        Message::Lend { request: 7, block: 8, page },
        Message::Over { request: 9, block: 10, written: true },
        Message::Over { request: 9, block: 10, written: false },
    ] {
        let bytes = message.to_bytes();
        assert_eq!(Message::from_bytes(&bytes), Some(message));
        assert_eq!(Message::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Message::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }
}
