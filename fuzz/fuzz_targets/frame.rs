//! The frame codec: whatever comes, in whatever pieces, decodes to the same frames or the same error, asks for no more than
//! the longest frame, and what it accepts encodes to the very bytes that came.
//!
//! Input: generation 1 | limit of notifications 2 | sizes of pieces 1 | the stream. That nothing is allocated by a claimed
//! length is seen by libFuzzer's limit (`ci/fuzz.sh` sets it).

#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage::Generation;
use peerage::transport::frame::{Codec, Decoded, Frame, FrameError};

fuzz_target!(|input: &[u8]| {
    let [generation, low, high, pieces, stream @ ..] = input else { return };
    let codec = Codec::new(Generation((*generation).into()), u16::from_le_bytes([*low, *high]).into());
    let whole = decode(&codec, stream, stream.len().max(1));
    let in_pieces = decode(&codec, stream, usize::from(*pieces) % 29 + 1);
    assert_eq!(whole, in_pieces, "the pieces make a difference");
});

/// How many bytes of frames came before the end or the error, as a receiver sees it that gets `piece` bytes at a time.
fn decode(codec: &Codec, stream: &[u8], piece: usize) -> (usize, Option<FrameError>) {
    let (mut at, mut there, mut need) = (0, 0, 1);
    while there < stream.len() {
        there = (there + piece).min(stream.len());
        while there - at >= need {
            match codec.decode(&stream[at..there]) {
                Ok(Decoded::Need(more)) => {
                    assert!(more > there - at && more <= codec.max_frame(), "asks for {more} at {}", there - at);
                    need = more;
                }
                Ok(Decoded::Frame(frame, used)) => {
                    assert!(used <= there - at);
                    check(codec, &frame, &stream[at..at + used]);
                    at += used;
                    need = 1;
                }
                Err(error) => return (at, Some(error)),
            }
            if at == there {
                break;
            }
        }
    }
    // Bytes that asked for more than came may be wrong already.
    match codec.decode(&stream[at..]) {
        Err(error) => (at, Some(error)),
        Ok(Decoded::Need(_)) => (at, None),
        Ok(Decoded::Frame(..)) => panic!("a whole frame was not seen"),
    }
}

fn check(codec: &Codec, frame: &Frame<'_>, came: &[u8]) {
    let mut encoded = Vec::new();
    codec.encode(frame, &mut encoded);
    assert_eq!(encoded, came, "{frame:?}");
    for short in 0..came.len() {
        assert!(!matches!(codec.decode(&came[..short]), Ok(Decoded::Frame(..))), "a frame in {short} bytes of it");
    }
}
