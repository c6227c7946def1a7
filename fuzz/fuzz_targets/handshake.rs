//! Hello and answer: wrong bytes are refused as soon as they are seen and stay refused, right ones are never refused early,
//! and what is accepted encodes to the very bytes that came.
//!
//! Input: 0 or 1 for which | the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage::transport::frame::{ANSWER_MAX, Answer, Decoded, FrameError, HELLO_MAX, Hello};
use std::fmt::Debug;

fuzz_target!(|input: &[u8]| {
    match input {
        [0, bytes @ ..] => check(bytes, HELLO_MAX, Hello::decode, Hello::encode),
        [1, bytes @ ..] => check(bytes, ANSWER_MAX, Answer::decode, Answer::encode),
        _ => {}
    }
});

fn check<M: Debug + PartialEq>(
    bytes: &[u8],
    longest: usize,
    decode: impl Fn(&[u8]) -> Result<Decoded<M>, FrameError>,
    encode: impl Fn(&M, &mut Vec<u8>),
) {
    let bytes = &bytes[..bytes.len().min(longest + 2)];
    let mut settled = None;
    for there in 0..=bytes.len() {
        let decoded = decode(&bytes[..there]);
        if let Some(settled) = &settled {
            assert_eq!(&decoded, settled, "more bytes change what was said");
            continue;
        }
        match &decoded {
            Ok(Decoded::Need(more)) => assert!(*more > there && *more <= longest, "asks for {more} at {there}"),
            Ok(Decoded::Frame(message, used)) => {
                assert_eq!(*used, there, "not taken as soon as it was whole");
                let mut encoded = Vec::new();
                encode(message, &mut encoded);
                assert_eq!(encoded, bytes[..there]);
                settled = Some(decoded);
            }
            Err(_) => settled = Some(decoded),
        }
    }
}
