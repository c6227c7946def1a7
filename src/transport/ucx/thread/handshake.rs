//! What dialer and acceptor say of themselves before anything else.

use super::super::error::UcxError;
use super::super::inbound::{Inbound, Unusable};
use super::super::link::Link;
use super::super::{Counts, Settings, Shared};
use crate::transport::frame::{Answer, Decoded, FrameError, Hello, Verdict};
use crate::transport::limits::is_overfull;
use crate::transport::tcp::InboundKey;
use std::time::Instant;

/// Lets a dialer in, or says why not. `Err`: it is no dialer of ours.
pub(super) fn greet(inbound: &mut Inbound, body: &[u8], shared: &Shared) -> Result<(), Unusable> {
    let Settings { max_inbound, inbox_capacity, .. } = shared.settings;
    let (verdict, key) = match Hello::decode(body) {
        Ok(Decoded::Frame(hello, _)) => {
            let key = InboundKey { name: hello.name, incarnation: hello.incarnation, generation: hello.generation };
            let verdict = match () {
                () if hello.nonce.is_some() => Verdict::SecretUnused,
                () if hello.target != shared.name => Verdict::WrongName,
                () if shared.registry.len() >= max_inbound => Verdict::Full,
                () if is_overfull(&shared.inbox, max_inbound, inbox_capacity) => Verdict::Full,
                () if !shared.registry.enter(&key) => Verdict::Duplicate,
                () => Verdict::Welcome,
            };
            (verdict, Some(key))
        }
        Err(FrameError::Version { .. }) => (Verdict::WrongVersion, None),
        _ => return Err(Unusable),
    };
    if verdict == Verdict::Welcome {
        Counts::add(&shared.counts.accepted);
        inbound.serving.key = key;
        inbound.serving.until = None;
    } else {
        Counts::add(&shared.counts.refused);
    }
    let mut answer = Vec::new();
    Answer {
        verdict,
        name: shared.name.clone(),
        incarnation: shared.incarnation(),
        max_notification: shared.settings.max_notification as u32,
        token: None,
    }
    .encode(&mut answer);
    let now = Instant::now();
    inbound.serving.answer = Some((now + shared.settings.accept_delay, answer));
    inbound.answer(now)
}

pub(super) fn welcomed(link: &Link, body: &[u8]) -> Result<Answer, UcxError> {
    let (peer, address) = (link.peer.clone(), link.address.clone());
    match Answer::decode(body) {
        Ok(Decoded::Frame(answer, _)) => match answer.verdict {
            Verdict::Welcome if answer.name == peer => Ok(answer),
            Verdict::Welcome | Verdict::WrongName => Err(UcxError::WrongName { peer, address, actual: answer.name }),
            verdict => Err(UcxError::Refused { peer, address, verdict }),
        },
        Err(FrameError::Version { .. }) => Err(UcxError::Refused { peer, address, verdict: Verdict::WrongVersion }),
        _ => Err(link.misbehaved()),
    }
}
