//! What two processes share so that each can prove to the other who it is, without saying it.
//!
//! A proof is a MAC over everything both sides have said: names, incarnations, generation, version and a fresh nonce of
//! each. So a proof that was overheard is worth nothing in another handshake, and as the two sides' proofs begin with
//! different labels, none is worth anything when it is sent back.
//!
//! What is proven is who opened the connection. The frames that follow are neither encrypted nor authenticated.

use crate::transport::frame::{Answer, Hello, TOKEN};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The fewest bytes of a secret: a stranger that takes down one handshake can try secrets on it for as long as it likes.
pub(super) const MIN_SECRET: usize = 16;

/// Who proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Dialer,
    Acceptor,
}

/// A key made of the secret; the secret itself is not kept.
#[derive(Clone)]
pub(super) struct Secret {
    key: Hmac<Sha256>,
}

impl Secret {
    /// `None`: too short.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let key = Hmac::new_from_slice(bytes).ok()?;
        (bytes.len() >= MIN_SECRET).then_some(Secret { key })
    }

    /// The dialer's proof, once it was challenged.
    pub(super) fn dialer_proof(&self, hello: &Hello, challenge: &Answer) -> [u8; TOKEN] {
        self.mac(Side::Dialer, hello, challenge, None).finalize().into_bytes().into()
    }

    /// The acceptor's proof, which goes into `answer`.
    pub(super) fn acceptor_proof(&self, hello: &Hello, challenge: &Answer, answer: &Answer) -> [u8; TOKEN] {
        self.mac(Side::Acceptor, hello, challenge, Some(answer)).finalize().into_bytes().into()
    }

    /// Whether a dialer knows the secret. Takes as long for every wrong proof.
    pub(super) fn is_dialer(&self, hello: &Hello, challenge: &Answer, proof: &[u8; TOKEN]) -> bool {
        self.mac(Side::Dialer, hello, challenge, None).verify_slice(proof).is_ok()
    }

    /// Whether the acceptor who sent `answer` knows the secret.
    pub(super) fn is_acceptor(&self, hello: &Hello, challenge: &Answer, answer: &Answer) -> bool {
        let mac = self.mac(Side::Acceptor, hello, challenge, Some(answer));
        answer.token.is_some_and(|proof| mac.verify_slice(&proof).is_ok())
    }

    /// Each message says how long it is by itself, so no two transcripts have the same bytes.
    fn mac(&self, side: Side, hello: &Hello, challenge: &Answer, answer: Option<&Answer>) -> Hmac<Sha256> {
        let mut transcript = Vec::new();
        transcript.extend_from_slice(match side {
            Side::Dialer => b"peerage dialer\0",
            Side::Acceptor => b"peerage acceptor\0",
        });
        hello.encode(&mut transcript);
        challenge.encode(&mut transcript);
        if let Some(answer) = answer {
            Answer { token: None, ..answer.clone() }.encode(&mut transcript);
        }
        self.key.clone().chain_update(&transcript)
    }
}

impl fmt::Debug for Secret {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Bytes that nobody can foresee.
pub(super) fn nonce() -> [u8; TOKEN] {
    let mut nonce = [0; TOKEN];
    getrandom::fill(&mut nonce).expect("the operating system gives random bytes once booted");
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Incarnation, PeerName};
    use crate::state::Generation;
    use crate::transport::frame::Verdict;

    fn name(name: &str) -> PeerName {
        PeerName::new(name).unwrap()
    }

    fn hello() -> Hello {
        Hello {
            name: name("a"),
            incarnation: Incarnation(1),
            generation: Generation(2),
            target: name("b"),
            nonce: Some([3; TOKEN]),
        }
    }

    fn said(verdict: Verdict, token: Option<[u8; TOKEN]>) -> Answer {
        Answer { verdict, name: name("b"), incarnation: Incarnation(4), max_notification: 5, token }
    }

    #[test]
    fn a_proof_holds_for_everything_both_sides_said_and_for_nothing_else() {
        let secret = Secret::new(&[9; MIN_SECRET]).unwrap();
        let (hello, challenge) = (hello(), said(Verdict::Challenge, Some([6; TOKEN])));
        let proof = secret.dialer_proof(&hello, &challenge);
        assert!(secret.is_dialer(&hello, &challenge, &proof));
        let other = Secret::new(&[8; MIN_SECRET]).unwrap();
        assert!(!other.is_dialer(&hello, &challenge, &proof));
        for hello in [
            Hello { name: name("c"), ..hello.clone() },
            Hello { target: name("c"), ..hello.clone() },
            Hello { name: name("ab"), target: name("b"), ..hello.clone() },
            Hello { incarnation: Incarnation(2), ..hello.clone() },
            Hello { generation: Generation(3), ..hello.clone() },
            Hello { nonce: Some([4; TOKEN]), ..hello.clone() },
        ] {
            assert!(!secret.is_dialer(&hello, &challenge, &proof), "{hello:?}");
        }
        for challenge in [
            Answer { name: name("c"), ..challenge.clone() },
            Answer { incarnation: Incarnation(5), ..challenge.clone() },
            Answer { token: Some([7; TOKEN]), ..challenge.clone() },
            Answer { max_notification: 6, ..challenge.clone() },
        ] {
            assert!(!secret.is_dialer(&hello, &challenge, &proof), "{challenge:?}");
        }

        let welcome = said(Verdict::Welcome, None);
        let proven = Answer { token: Some(secret.acceptor_proof(&hello, &challenge, &welcome)), ..welcome.clone() };
        assert!(secret.is_acceptor(&hello, &challenge, &proven));
        assert!(!other.is_acceptor(&hello, &challenge, &proven));
        assert!(!secret.is_acceptor(&hello, &challenge, &welcome), "no proof at all");
        assert!(!secret.is_acceptor(&hello, &challenge, &Answer { verdict: Verdict::Full, ..proven.clone() }));
        assert!(!secret.is_acceptor(&hello, &challenge, &Answer { max_notification: 6, ..proven }));
        let reflected = Answer { token: Some(proof), ..welcome };
        assert!(!secret.is_acceptor(&hello, &challenge, &reflected), "the dialer's own proof, sent back");
    }

    #[test]
    fn a_secret_is_long_and_never_shown() {
        assert!(Secret::new(&[1; MIN_SECRET - 1]).is_none());
        let secret = Secret::new(b"correct horse battery").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        assert_ne!(nonce(), nonce());
    }
}
