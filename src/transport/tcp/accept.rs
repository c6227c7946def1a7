//! From a stranger's socket to a listed connection: the accept loop and our side of the handshake.
//!
//! A stranger costs a descriptor, a task and a buffer of fixed size until its hello is whole, for `handshake_timeout` at
//! most. Strangers have places of their own; when these are full the one that has waited longest goes, so that a flood of
//! silent sockets does not keep out a dialer, who says hello at once.

use super::error::Misbehaviour;
use super::inbound::{InboundKey, Place};
use super::serve::serve;
use super::wire::{WireError, handshake};
use super::{Counts, Shared};
use crate::transport::frame::{Answer, FrameError, HELLO_MAX, Hello, Verdict};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// The most strangers at once.
const MAX_STRANGERS: usize = 128;
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
    tasks: BTreeMap<u64, Option<AbortHandle>>,
}

impl Strangers {
    /// A place for a new one, and whether an older one had to go.
    fn enter(&self) -> (u64, bool) {
        let mut waiting = self.lock();
        waiting.next += 1;
        let id = waiting.next;
        waiting.tasks.insert(id, None);
        let oldest = if waiting.tasks.len() > MAX_STRANGERS { waiting.tasks.pop_first() } else { None };
        drop(waiting);
        let Some((_, task)) = oldest else { return (id, false) };
        task.inspect(AbortHandle::abort);
        (id, true)
    }

    fn runs_as(&self, id: u64, task: AbortHandle) {
        if let Some(place) = self.lock().tasks.get_mut(&id) {
            *place = Some(task);
        }
    }

    /// No stranger any more; `false` if it had to go.
    fn leave(&self, id: u64) -> bool {
        self.lock().tasks.remove(&id).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts until the transport is gone. An accept that fails (no descriptors left) is counted, and the loop rests, longer
/// each time, instead of spinning.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, mut gone: watch::Receiver<()>) {
    let mut rest = REST.0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = gone.changed() => return,
        };
        match accepted {
            Ok((stream, peer_addr)) => {
                rest = REST.0;
                greet(stream, peer_addr, &shared, &gone);
            }
            Err(_) => {
                Counts::add(&shared.counts.accept_errors);
                tokio::select! {
                    () = sleep(rest) => rest = (rest * 2).min(REST.1),
                    _ = gone.changed() => return,
                }
            }
        }
    }
}

fn greet(stream: TcpStream, peer_addr: SocketAddr, shared: &Arc<Shared>, gone: &watch::Receiver<()>) {
    let (id, evicted) = shared.strangers.enter();
    if evicted {
        Counts::add(&shared.counts.evicted);
    }
    let (task_shared, mut gone) = (shared.clone(), gone.clone());
    let task = tokio::spawn(async move {
        let stranger = Stranger { shared: &task_shared, id };
        let mut stream = stream;
        let welcomed = tokio::select! {
            welcomed = welcome(&mut stream, peer_addr, &stranger) => welcomed,
            _ = gone.changed() => return,
        };
        drop(stranger);
        if let Some(place) = welcomed {
            serve(place, stream, &task_shared, gone).await;
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

async fn welcome(stream: &mut TcpStream, peer_addr: SocketAddr, stranger: &Stranger<'_>) -> Option<Place> {
    let Stranger { shared, id } = *stranger;
    let counts = &shared.counts;
    let limit = shared.settings.handshake_timeout;
    let mut buffer = [0; HELLO_MAX];
    let hello = match timeout(limit, handshake(stream, &mut buffer, Hello::decode)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => {
            Counts::add(&counts.refused);
            if let WireError::Peer(Misbehaviour::Frame(FrameError::Version { .. })) = error {
                answer(stream, shared, Verdict::WrongVersion).await;
            }
            return None;
        }
        Err(_) => {
            Counts::add(&counts.timed_out);
            return None;
        }
    };
    sleep(shared.settings.accept_delay).await;
    // From here on no flood can end it; if one has, its abort is on the way.
    if !shared.strangers.leave(id) {
        return None;
    }
    let key = InboundKey { name: hello.name, incarnation: hello.incarnation, generation: hello.generation };
    let entered = if hello.target != shared.name {
        Err(Verdict::WrongName)
    } else if shared.has_too_many_messages() {
        Err(Verdict::Full)
    } else {
        shared.inbound.enter(key, peer_addr, &shared.grants)
    };
    match entered {
        Ok(place) => {
            let _ = stream.set_nodelay(true);
            if !answer(stream, shared, Verdict::Welcome).await {
                return None;
            }
            Counts::add(&counts.accepted);
            Some(place)
        }
        Err(verdict) => {
            Counts::add(&counts.refused);
            answer(stream, shared, verdict).await;
            None
        }
    }
}

async fn answer(stream: &mut TcpStream, shared: &Shared, verdict: Verdict) -> bool {
    let answer = Answer {
        verdict,
        name: shared.name.clone(),
        incarnation: shared.incarnation,
        max_notification: shared.settings.max_notification as u32,
    };
    let mut out = Vec::new();
    answer.encode(&mut out);
    matches!(timeout(shared.settings.handshake_timeout, stream.write_all(&out)).await, Ok(Ok(())))
}
