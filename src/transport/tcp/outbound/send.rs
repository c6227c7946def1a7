//! The half that sends: what waits in the queue, in turns of all notifications and at most one chunk of a transfer.

use crate::region::Slice;
use crate::transfer::{Outcome, Post, TransferError, TransferId, TransferKind};
use crate::transport::frame::{CHUNK, Direction, Frame};
use crate::transport::tcp::connection::{Link, Queue, Running};
use crate::transport::tcp::wire::WireError;
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};

pub(super) async fn send(link: &Link, to: &mut (impl AsyncWrite + Unpin), unsent: &mut Unsent) -> WireError {
    let mut stream = None;
    loop {
        unsent.out.clear();
        unsent.written = 0;
        if !fill(link, &mut unsent.out, &mut stream) {
            link.work.notified().await;
            continue;
        }
        if let Err(error) = unsent.send(to).await {
            return error.into();
        }
        link.pulse.sent();
        link.lock().notes_in_flight = 0;
    }
}

/// Puts all notifications there are and at most one chunk into `out`, so that neither waits long for the other.
/// `false`: there was nothing.
pub(super) fn fill(link: &Link, out: &mut Vec<u8>, stream: &mut Option<Stream>) -> bool {
    let mut given_up = Vec::new();
    let filled = fill_but(&mut given_up, link, out, stream);
    for post in given_up {
        post.completion.complete(Outcome::Failed(TransferError::NotSent));
    }
    filled
}

/// The same; transfers that were given up while they waited are left over, to be ended under no lock.
fn fill_but(given_up: &mut Vec<Post>, link: &Link, out: &mut Vec<u8>, stream: &mut Option<Stream>) -> bool {
    let mut queue = link.lock();
    std::mem::swap(out, &mut queue.notes);
    queue.notes_in_flight = out.len();
    queue.ping_waits = false;
    if let Some(ping) = queue.pong_for.take() {
        link.codec.encode(&Frame::Pong(ping), out);
    }
    for transfer in std::mem::take(&mut queue.cancels) {
        // Behind all of its data that was sent: nothing reads its pages any more.
        stream.take_if(|stream| stream.transfer == transfer);
        link.codec.encode(&Frame::Cancel { transfer }, out);
    }
    while stream.is_none() && out.len() < queue.notes_in_flight + CHUNK {
        let Some(post) = queue.waiting.pop_front() else { break };
        match post.completion.begins() {
            true => *stream = begin(link, &mut queue, post, out),
            false => given_up.push(post),
        }
    }
    if let Some(Stream { transfer, local, at }) = stream {
        let len = CHUNK.min(local.len() - *at);
        link.codec.begin_data(Direction::Write, *transfer, len, out);
        if let Some(running) = queue.running.get_mut(transfer) {
            running.at = *at + len;
            running.completion.progress(running.at as u64);
        }
        drop(queue);
        let start = out.len();
        out.resize(start + len, 0);
        local.read(*at, &mut out[start..]).expect("a chunk is cut inside its slice");
        *at += len;
        if *at == local.len() {
            *stream = None;
        }
        return true;
    }
    queue.idle = out.is_empty();
    !queue.idle
}

/// The first frame of a transfer. Gives back a write that has bytes to follow.
fn begin(link: &Link, queue: &mut Queue, post: Post, out: &mut Vec<u8>) -> Option<Stream> {
    let Post { id: transfer, kind, local, remote: page, completion } = post;
    let frame = match kind {
        TransferKind::Write => Frame::Write { transfer, page },
        TransferKind::Read => Frame::Read { transfer, page },
    };
    link.codec.encode(&frame, out);
    let stream =
        (kind == TransferKind::Write && !local.is_empty()).then(|| Stream { transfer, local: local.clone(), at: 0 });
    queue.running.insert(transfer, Running { completion, kind, local, at: 0, cancelled: false });
    stream
}

/// What is being cut into chunks.
pub(super) struct Stream {
    transfer: TransferId,
    local: Slice,
    at: usize,
}

/// Bytes that were taken out of the queue, and how many of them are written.
#[derive(Default)]
pub(super) struct Unsent {
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
}

impl Unsent {
    pub(super) async fn send(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while self.written < self.out.len() {
            match to.write(&self.out[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.written += written,
            }
        }
        Ok(())
    }
}
