//! What decode and prefill processes say to each other, as notifications.

use peerage::RemoteSlice;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Nothing; its sender measures how long sending takes.
    Probe,
    /// Decode to prefill: my pages are ready, write these blocks into them.
    Ready { request: u64, blocks: Vec<(u64, RemoteSlice)> },
    /// Prefill to decode: all pages are written.
    Done { request: u64 },
    /// Prefill to decode: not all pages are written, and why.
    Failed { request: u64, why: String },
}

const BLOCK: usize = 8 + RemoteSlice::ENCODED;

impl Message {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (tag, request) = match self {
            Message::Probe => return vec![0],
            Message::Ready { request, .. } => (1, request),
            Message::Done { request } => (2, request),
            Message::Failed { request, .. } => (3, request),
        };
        let mut bytes = vec![tag];
        bytes.extend(request.to_le_bytes());
        match self {
            Message::Ready { blocks, .. } => {
                for (block, page) in blocks {
                    bytes.extend(block.to_le_bytes());
                    bytes.extend(page.to_bytes());
                }
            }
            Message::Failed { why, .. } => bytes.extend(why.as_bytes()),
            _ => {}
        }
        bytes
    }

    /// `None`: not one of ours.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes == [0] {
            return Some(Message::Probe);
        }
        let (tag, rest) = bytes.split_first()?;
        let (request, rest) = rest.split_first_chunk()?;
        let request = u64::from_le_bytes(*request);
        match tag {
            1 => {
                let blocks = rest.chunks(BLOCK).map(|block| {
                    let (id, page) = block.split_first_chunk()?;
                    Some((u64::from_le_bytes(*id), RemoteSlice::from_bytes(page.try_into().ok()?)))
                });
                Some(Message::Ready { request, blocks: blocks.collect::<Option<_>>()? })
            }
            2 if rest.is_empty() => Some(Message::Done { request }),
            3 => Some(Message::Failed { request, why: String::from_utf8_lossy(rest).into() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_wire() {
        let page = RemoteSlice { grant: 1 << 100, region: 2, offset: 3, len: 4 };
        for message in [
            Message::Probe,
            Message::Ready { request: 9, blocks: vec![(7, page), (8, RemoteSlice { offset: 7, ..page })] },
            Message::Done { request: 9 },
            Message::Failed { request: 9, why: "revoked".into() },
        ] {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        }
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let page = RemoteSlice { grant: 1, region: 2, offset: 3, len: 4 };
        let whole = Message::Ready { request: 9, blocks: vec![(7, page)] }.to_bytes();
        assert!((10..whole.len()).all(|len| Message::from_bytes(&whole[..len]).is_none()));
        for bytes in [&[][..], &[1], &[2, 0, 0], &[9; 9], &[2; 10], &[0, 0]] {
            assert_eq!(Message::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
