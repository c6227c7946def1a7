//! Bytes from a socket into the codec. Buffers grow with what has arrived, never with what a peer claims.

use super::error::Misbehaviour;
use crate::transport::frame::{Codec, Decoded, Farewell, Frame, FrameError, TOKEN};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

const FIRST_BUFFER: usize = 4096;

/// Why no frame came.
#[derive(Debug)]
pub(super) enum WireError {
    Io(io::Error),
    Peer(Misbehaviour),
    /// The other side ended between two frames.
    End,
    /// It said goodbye.
    Goodbye(Farewell),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        WireError::Io(error)
    }
}

impl From<Misbehaviour> for WireError {
    fn from(error: Misbehaviour) -> Self {
        WireError::Peer(error)
    }
}

impl From<FrameError> for WireError {
    fn from(error: FrameError) -> Self {
        WireError::Peer(error.into())
    }
}

/// Reads one handshake message, and not one byte more.
pub(super) async fn handshake<T>(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, FrameError>,
) -> Result<T, WireError> {
    let mut have = 0;
    loop {
        let need = match decode(&buffer[..have])? {
            Decoded::Frame(message, _) => return Ok(message),
            Decoded::Need(need) => need,
        };
        match from.read(&mut buffer[have..need]).await? {
            0 if have == 0 => return Err(WireError::End),
            0 => return Err(Misbehaviour::Truncated.into()),
            read => have += read,
        }
    }
}

/// Reads and forgets until the other side has ended too, so that what it is still sending resets nothing.
pub(super) async fn until_end(from: &mut (impl AsyncRead + Unpin)) {
    let mut nowhere = [0; 1024];
    while matches!(from.read(&mut nowhere).await, Ok(1..)) {}
}

/// Reads what a dialer sends after a challenge.
pub(super) async fn proof(from: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; TOKEN]> {
    let mut proof = [0; TOKEN];
    from.read_exact(&mut proof).await?;
    Ok(proof)
}

/// The frames of one direction of one connection.
#[derive(Debug)]
pub(super) struct FrameReader {
    codec: Codec,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl FrameReader {
    pub(super) fn new(codec: Codec) -> Self {
        FrameReader { codec, buffer: vec![0; FIRST_BUFFER.min(codec.max_frame())], start: 0, end: 0 }
    }

    /// The next frame, and its length on the wire. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<(Frame<'_>, usize), WireError> {
        while let Decoded::Need(need) = self.codec.decode(&self.buffer[self.start..self.end])? {
            self.make_room(need);
            match from.read(&mut self.buffer[self.end..]).await? {
                0 if self.start == self.end => return Err(WireError::End),
                0 => return Err(Misbehaviour::Truncated.into()),
                read => self.end += read,
            }
        }
        match self.codec.decode(&self.buffer[self.start..self.end])? {
            Decoded::Frame(frame, used) => {
                self.start += used;
                Ok((frame, used))
            }
            Decoded::Need(_) => Err(Misbehaviour::Truncated.into()),
        }
    }

    /// Room for at least one more byte, for all `need` if that takes no allocation.
    fn make_room(&mut self, need: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + need > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            // Full of one frame that is not whole: so much has arrived, as much again may come.
            let larger = (self.buffer.len() * 2).min(self.codec.max_frame());
            self.buffer.resize(larger, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Generation;
    use crate::transfer::TransferId;
    use crate::transport::frame::{CHUNK, HEADER};
    use tokio::io::AsyncWriteExt;

    const CODEC: Codec = Codec::new(Generation(7), 100);

    #[tokio::test]
    async fn frames_cut_at_every_length_come_out_whole() {
        for piece in [1, 7, 4096, 70_000, 1 << 20] {
            let data = vec![5; CHUNK];
            let mut bytes = Vec::new();
            for at in 0..20_u64 {
                CODEC.encode(&Frame::Notify { sequence: at, message: &at.to_le_bytes() }, &mut bytes);
                let len = if piece == 1 { 300 } else { CHUNK - at as usize };
                CODEC.encode(&Frame::WriteData { transfer: TransferId(at), bytes: &data[..len] }, &mut bytes);
            }
            let (mut from, mut to) = tokio::io::duplex(piece);
            let writer = tokio::spawn(async move { to.write_all(&bytes).await });
            let mut reader = FrameReader::new(CODEC);
            for at in 0..20_u64 {
                let note = Frame::Notify { sequence: at, message: &at.to_le_bytes() };
                assert_eq!(reader.next(&mut from).await.unwrap().0, note);
                let (frame, _) = reader.next(&mut from).await.unwrap();
                assert!(matches!(frame, Frame::WriteData { transfer: TransferId(seen), .. } if seen == at));
            }
            writer.await.unwrap().unwrap();
            assert!(matches!(reader.next(&mut from).await, Err(WireError::End)));
        }
    }

    #[tokio::test]
    async fn a_claimed_length_allocates_nothing_until_its_bytes_come() {
        let mut header = Vec::new();
        CODEC.encode(&Frame::WriteData { transfer: TransferId(1), bytes: &[0; CHUNK] }, &mut header);
        header.truncate(HEADER);
        let mut reader = FrameReader::new(CODEC);
        let ended = reader.next(&mut &header[..]).await;
        assert!(matches!(ended, Err(WireError::Peer(Misbehaviour::Truncated))));
        assert_eq!(reader.buffer.len(), FIRST_BUFFER);
    }

    #[tokio::test]
    async fn a_buffer_never_outgrows_the_longest_frame() {
        let mut bytes = Vec::new();
        for _ in 0..50 {
            CODEC.encode(&Frame::WriteData { transfer: TransferId(1), bytes: &[0; CHUNK] }, &mut bytes);
        }
        let (mut reader, mut from) = (FrameReader::new(CODEC), &bytes[..]);
        for _ in 0..50 {
            reader.next(&mut from).await.unwrap();
        }
        assert_eq!(reader.buffer.len(), CODEC.max_frame());
    }
}
