//! From a stranger's socket to a listed connection: the accept loop and our side of the handshake.
//!
//! A stranger costs a descriptor, a task and a buffer of fixed size until its hello is whole and its secret, if there is
//! one, is proven; all of the handshake has `handshake_timeout`. What it claims is looked up only after that. Strangers have places of their own; when these are full the one that has waited longest goes, so that a flood of
//! silent sockets does not keep out a dialer, who says hello at once; but not before it had some time to be heard.

use super::error::Misbehaviour;
use super::inbound::{InboundKey, Listed};
use super::secret;
use super::serve::serve;
use super::wire::{WireError, handshake, proof};
use super::{Counts, Shared};
use crate::sync::lock;
use crate::transport::frame::{Answer, FrameError, HELLO_MAX, Hello, Verdict};
use crate::transport::limits::is_overfull;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant as Deadline, sleep, timeout_at};

/// The most strangers at once.
const MAX_STRANGERS: usize = 128;
/// How long a stranger keeps its place at least once we listen to it, if it does not time out: many may come in one moment
/// and say hello, to a runtime that has much else to do.
const GRACE: Duration = Duration::from_millis(100);
/// How long the loop rests after an accept failed, first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Connections that have not said hello yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    places: BTreeMap<u64, Waits>,
}

#[derive(Debug)]
struct Waits {
    /// Since when what it says is heard. `None`: its task has not had its turn.
    since: Option<Instant>,
    task: Option<AbortHandle>,
}

impl Strangers {
    /// A place for a new one, and whether an older one had to go for it. `Err`: there is none before so much time has passed.
    fn enter(&self) -> Result<(u64, bool), Duration> {
        let mut waiting = self.lock();
        let full = waiting.places.len() >= MAX_STRANGERS;
        let oldest = waiting.places.first_entry().filter(|_| full);
        let waited = |since: Option<Instant>| since.map_or(Duration::ZERO, |since| since.elapsed());
        let oldest = match oldest.map(|place| (waited(place.get().since), place)) {
            Some((waited, _)) if waited < GRACE => return Err(GRACE - waited),
            oldest => oldest.map(|(_, place)| place.remove()),
        };
        waiting.next += 1;
        let id = waiting.next;
        waiting.places.insert(id, Waits { since: None, task: None });
        drop(waiting);
        if let Some(task) = oldest.as_ref().and_then(|oldest| oldest.task.as_ref()) {
            task.abort();
        }
        Ok((id, oldest.is_some()))
    }

    fn runs_as(&self, id: u64, task: AbortHandle) {
        if let Some(place) = self.lock().places.get_mut(&id) {
            place.task = Some(task);
        }
    }

    /// From here on it is listened to.
    fn listens(&self, id: u64) {
        if let Some(place) = self.lock().places.get_mut(&id) {
            place.since = Some(Instant::now());
        }
    }

    /// No stranger any more; `false` if it had to go.
    fn leave(&self, id: u64) -> bool {
        self.lock().places.remove(&id).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

/// Accepts until the transport ends or is gone. An accept that fails (no descriptors left) is counted, and the loop rests, longer
/// each time, instead of spinning.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, mut gone: watch::Receiver<()>) {
    let until_gone = gone.clone();
    let mut closing = shared.closing.subscribe();
    tokio::select! {
        never = accept_for_ever(&listener, &shared, &until_gone) => match never {},
        _ = closing.wait_for(|closing| *closing) => {}
        _ = gone.changed() => {}
    }
}

async fn accept_for_ever(listener: &TcpListener, shared: &Arc<Shared>, gone: &watch::Receiver<()>) -> Infallible {
    let mut rest = REST.0;
    loop {
        match listener.accept().await {
            Ok((stream, peer_addr)) => {
                rest = REST.0;
                let (id, evicted) = loop {
                    match shared.strangers.enter() {
                        Ok(place) => break place,
                        // The others wait in the operating system's queue.
                        Err(wait) => sleep(wait).await,
                    }
                };
                if evicted {
                    Counts::add(&shared.counts.evicted);
                }
                greet(id, stream, peer_addr, shared, gone.clone());
            }
            Err(_) => {
                Counts::add(&shared.counts.accept_errors);
                sleep(rest).await;
                rest = (rest * 2).min(REST.1);
            }
        }
    }
}

fn greet(id: u64, stream: TcpStream, peer_addr: SocketAddr, shared: &Arc<Shared>, mut gone: watch::Receiver<()>) {
    let task_shared = shared.clone();
    let task = tokio::spawn(async move {
        let stranger = Stranger { shared: &task_shared, id };
        let mut closing = task_shared.closing.subscribe();
        let mut stream = stream;
        // A turn of the runtime, after which it knows what this dialer has sent already.
        yield_now().await;
        task_shared.strangers.listens(id);
        let welcomed = tokio::select! {
            welcomed = welcome(&mut stream, peer_addr, &stranger) => welcomed,
            _ = closing.wait_for(|closing| *closing) => return,
            _ = gone.changed() => return,
        };
        drop(stranger);
        if let Some(listed) = welcomed {
            serve(listed, stream, &task_shared, gone).await;
        }
    });
    shared.strangers.runs_as(id, task.abort_handle());
}

/// Leaves the strangers' places, however the handshake ends.
struct Stranger<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        self.shared.strangers.leave(self.id);
    }
}

async fn welcome(stream: &mut TcpStream, peer_addr: SocketAddr, stranger: &Stranger<'_>) -> Option<Listed> {
    let Stranger { shared, id } = *stranger;
    let counts = &shared.counts;
    let deadline = Deadline::now() + shared.settings.handshake_timeout;
    let greeted = match timeout_at(deadline, greeting(stream, shared)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(refused)) => {
            Counts::add(&counts.refused);
            if let Some(verdict) = refused {
                say(stream, &answer(shared, verdict), deadline).await;
            }
            return None;
        }
        Err(_) => {
            Counts::add(&counts.timed_out);
            return None;
        }
    };
    // From here on no flood can end it; if one has, its abort is on the way.
    if !shared.strangers.leave(id) {
        return None;
    }
    let Greeted { hello, challenge } = greeted;
    let key = InboundKey { name: hello.name.clone(), incarnation: hello.incarnation, generation: hello.generation };
    let entered = if hello.target != shared.name {
        Err(Verdict::WrongName)
    } else if is_overfull(&shared.inbox, shared.settings.max_inbound, shared.settings.inbox_capacity) {
        Err(Verdict::Full)
    } else {
        shared.inbound.enter(key, peer_addr, &shared.grants)
    };
    sleep(shared.settings.accept_delay).await;
    let mut answer = answer(shared, entered.as_ref().err().copied().unwrap_or(Verdict::Welcome));
    if let (Some(secret), Some(challenge)) = (&shared.settings.secret, &challenge) {
        answer.token = Some(secret.acceptor_proof(&hello, challenge, &answer));
    }
    let said = say(stream, &answer, deadline + shared.settings.accept_delay).await;
    match entered {
        Ok(listed) if said => {
            let _ = stream.set_nodelay(true);
            Counts::add(&counts.accepted);
            Some(listed)
        }
        Ok(_) => None,
        Err(_) => {
            Counts::add(&counts.refused);
            None
        }
    }
}

/// A dialer who said hello and, if there is a secret, has proven it.
struct Greeted {
    hello: Hello,
    challenge: Option<Answer>,
}

/// `Err`: not a dialer for us; what to tell it, if anything.
async fn greeting(stream: &mut TcpStream, shared: &Shared) -> Result<Greeted, Option<Verdict>> {
    let mut buffer = [0; HELLO_MAX];
    let hello = match handshake(stream, &mut buffer, Hello::decode).await {
        Ok(hello) => hello,
        Err(WireError::Peer(Misbehaviour::Frame(FrameError::Version { .. }))) => {
            return Err(Some(Verdict::WrongVersion));
        }
        Err(_) => return Err(None),
    };
    let secret = match (&shared.settings.secret, hello.nonce) {
        (None, None) => return Ok(Greeted { hello, challenge: None }),
        (None, Some(_)) => return Err(Some(Verdict::SecretUnused)),
        (Some(_), None) => {
            Counts::add(&shared.counts.unproven);
            return Err(Some(Verdict::SecretMissing));
        }
        (Some(secret), Some(_)) => secret,
    };
    let challenge = Answer { token: Some(secret::nonce()), ..answer(shared, Verdict::Challenge) };
    let mut out = Vec::new();
    challenge.encode(&mut out);
    stream.write_all(&out).await.map_err(|_| None)?;
    let proof = proof(stream).await.map_err(|_| None)?;
    if !secret.is_dialer(&hello, &challenge, &proof) {
        Counts::add(&shared.counts.unproven);
        return Err(Some(Verdict::WrongSecret));
    }
    Ok(Greeted { hello, challenge: Some(challenge) })
}

fn answer(shared: &Shared, verdict: Verdict) -> Answer {
    Answer {
        verdict,
        name: shared.name.clone(),
        incarnation: shared.incarnation(),
        max_notification: shared.settings.max_notification as u32,
        token: None,
    }
}

async fn say(stream: &mut TcpStream, answer: &Answer, deadline: Deadline) -> bool {
    let mut out = Vec::new();
    answer.encode(&mut out);
    matches!(timeout_at(deadline, stream.write_all(&out)).await, Ok(Ok(())))
}
