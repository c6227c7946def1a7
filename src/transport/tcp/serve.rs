//! One connection that somebody opened to us: frames in, pages written and read under grants, answers out.
//!
//! One task with two halves. The reading half never writes to the socket: it hands answers to the writing half over a
//! short channel, and stops reading when that is full, so a peer that does not take its answers buffers nothing here. It
//! also stops when the inbox has no room for this peer.

use super::error::Misbehaviour;
use super::inbound::{InboundKey, Listed, Live, Stop};
use super::outbound::LINGER;
use super::wire::{FrameReader, WireError, until_end};
use super::{Counts, Shared};
use crate::grant::{Access, Loan, Refusal};
use crate::inbox::{Notification, Source};
use crate::sync::lock;
use crate::transfer::{RemoteSlice, TransferId};
use crate::transport::frame::{CHUNK, Codec, Direction, Farewell, Frame};
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Answers that may wait for the writing half.
const ANSWERS: usize = 64;
/// The most writes that one connection may have begun and not finished.
const MAX_WRITES: usize = 64;

/// What the reading half asks the writing half to send.
enum Answer {
    Ack(TransferId, Option<Refusal>),
    Page(TransferId, Loan),
    Pong(u64),
    Ping,
}

/// A write of which bytes are still to come.
struct Write {
    /// Where they go; a refused one's go nowhere.
    to: Result<Loan, Refusal>,
    at: u64,
    len: u64,
}

/// Reads that are not answered yet, and whether they were given up; both halves know them.
type Reads = Mutex<HashMap<TransferId, bool>>;

/// Serves until the peer or anybody here ends the connection. `listed` is dropped after both halves are gone.
pub(super) async fn serve(listed: Listed, mut stream: TcpStream, shared: &Shared, mut gone: watch::Receiver<()>) {
    let live = &*listed.live;
    let codec = Codec::new(live.key.generation, shared.settings.max_notification);
    let (to_writer, answers) = mpsc::channel(ANSWERS);
    let reads = Reads::default();
    let source = shared.inbox.source(shared.settings.inbox_capacity);
    let (mut from, mut to) = stream.split();
    let ping = to_writer.clone();
    let mut heard = live.pulse.listen(&mut from);
    let reader = Reader {
        live,
        shared,
        source,
        answers: to_writer,
        reads: &reads,
        writes: HashMap::new(),
        cancelled: VecDeque::new(),
        sequence: 0,
    };
    let (say_goodbye, goodbye) = watch::channel(None);
    let mut closing = shared.closing.subscribe();
    let (counts, mut stopped) = (&shared.counts, None);
    let mut farewell = None;
    {
        let mut writing = pin!(write(live, codec, answers, &reads, &mut to, goodbye));
        tokio::select! {
            error = reader.run(codec, &mut heard) => Counts::add(match error {
                WireError::Goodbye(_) => &counts.goodbyes,
                WireError::Peer(_) => &counts.misbehaved,
                WireError::End | WireError::Io(_) => &counts.lost,
            }),
            () = &mut writing => Counts::add(&counts.lost),
            how = live.stopped() => match how {
                Stop::Goodbye => farewell = Some(Farewell::Removed),
                Stop::Reset => stopped = Some(Stop::Reset),
            },
            _ = closing.wait_for(|closing| *closing) => farewell = Some(Farewell::Shutdown),
            // A ping that finds no room need not be sent: there is more than enough under way.
            () = live.pulse.stops(shared.settings.keepalive, move || drop(ping.try_send(Answer::Ping))) => {
                Counts::add(&counts.silent);
                stopped = Some(Stop::Reset);
            }
            _ = gone.changed() => {}
        }
        // Nothing is read any more, so nothing more lands here.
        if let Some(farewell) = farewell {
            say_goodbye.send_replace(Some(farewell));
            let limited = async {
                match farewell {
                    // Until `Transport::end` has no more time.
                    Farewell::Shutdown => writing.await,
                    _ => drop(timeout(LINGER, writing).await),
                }
            };
            tokio::select! {
                () = limited => {}
                how = live.stopped() => stopped = Some(how),
                _ = gone.changed() => {}
            }
        }
    }
    if farewell.is_some() && stopped.is_none() {
        tokio::select! {
            _ = timeout(LINGER, until_end(&mut stream)) => {}
            how = live.stopped() => stopped = Some(how),
            _ = gone.changed() => {}
        }
    }
    if stopped == Some(Stop::Reset) {
        super::reset_on_close(&stream);
    }
    drop(stream);
}

struct Reader<'a> {
    live: &'a Live,
    shared: &'a Shared,
    source: Source,
    answers: mpsc::Sender<Answer>,
    reads: &'a Reads,
    writes: HashMap<TransferId, Write>,
    /// Writes that were given up, the last ones: their data may still come.
    cancelled: VecDeque<TransferId>,
    /// Of the last message.
    sequence: u64,
}

impl Reader<'_> {
    async fn run(mut self, codec: Codec, from: &mut (impl AsyncRead + Unpin)) -> WireError {
        let mut frames = FrameReader::new(codec);
        loop {
            let taken = match frames.next(from).await {
                Ok((frame, used)) => {
                    self.live.received.fetch_add(used as u64, Ordering::Relaxed);
                    self.take(frame).await
                }
                Err(error) => return error,
            };
            if let Err(error) = taken {
                return error;
            }
        }
    }

    async fn take(&mut self, frame: Frame<'_>) -> Result<(), WireError> {
        match frame {
            Frame::Notify { sequence, message } => self.notified(sequence, message).await,
            Frame::Unknown { .. } => Counts::add(&self.shared.counts.unknown_frames),
            Frame::Write { transfer, page } => {
                if self.runs(transfer) {
                    self.answer(Answer::Ack(transfer, Some(Refusal::DuplicateTransfer))).await;
                } else if self.writes.len() == MAX_WRITES {
                    return Err(Misbehaviour::TooManyTransfers { limit: MAX_WRITES }.into());
                } else {
                    let write = Write { to: self.present(page, Access::Write), at: 0, len: page.len };
                    self.writes.insert(transfer, write);
                    self.end_if_whole(transfer).await;
                }
            }
            Frame::WriteData { transfer, bytes } => {
                let Some(write) = self.writes.get_mut(&transfer) else {
                    if !self.cancelled.contains(&transfer) {
                        return Err(Misbehaviour::NoSuchTransfer { transfer }.into());
                    }
                    Counts::add(&self.shared.counts.late_data);
                    return Ok(());
                };
                if bytes.len() as u64 > write.len - write.at {
                    return Err(Misbehaviour::WrongLength { transfer }.into());
                }
                if let Ok(loan) = &write.to
                    && let Err(refusal) = loan.write(write.at as usize, bytes)
                {
                    write.to = Err(refusal);
                }
                write.at += bytes.len() as u64;
                self.end_if_whole(transfer).await;
            }
            Frame::Read { transfer, page } => {
                let answer = if self.runs(transfer) {
                    Answer::Ack(transfer, Some(Refusal::DuplicateTransfer))
                } else {
                    match self.present(page, Access::Read) {
                        Ok(loan) => {
                            lock(self.reads).insert(transfer, false);
                            Answer::Page(transfer, loan)
                        }
                        Err(refusal) => Answer::Ack(transfer, Some(refusal)),
                    }
                };
                self.answer(answer).await;
            }
            Frame::Cancel { transfer } => self.cancel(transfer).await,
            Frame::Ping(nonce) => self.answer(Answer::Pong(nonce)).await,
            Frame::Pong(_) => {}
            Frame::Goodbye { code } => return Err(WireError::Goodbye(Farewell::from_code(code))),
            _ => return Err(Misbehaviour::WrongSide.into()),
        }
        Ok(())
    }

    /// Queues a message, once there is room for it, unless it is old.
    async fn notified(&mut self, sequence: u64, message: &[u8]) {
        let counts = &self.shared.counts;
        if sequence <= self.sequence {
            return Counts::add(&counts.duplicates);
        }
        self.sequence = sequence;
        let InboundKey { name, incarnation, generation } = self.live.key.clone();
        let mut next = Notification::new(name, Some(incarnation), Some(generation), message.to_vec());
        next = next.with_sequence(sequence);
        let _deaf = self.live.pulse.deaf();
        loop {
            self.source.room(next.bytes.len()).await;
            match self.source.try_push_if(next, || !self.live.is_superseded()) {
                Ok(true) => return,
                Ok(false) => return Counts::add(&counts.outdated),
                Err(back) => next = back,
            }
        }
    }

    /// Forgets a write, or has the writing half break off a read. One that is over has been answered.
    async fn cancel(&mut self, transfer: TransferId) {
        if self.writes.remove(&transfer).is_some() {
            Counts::add(&self.shared.counts.cancelled);
            if self.cancelled.len() == MAX_WRITES {
                self.cancelled.pop_front();
            }
            self.cancelled.push_back(transfer);
            self.answer(Answer::Ack(transfer, Some(Refusal::Cancelled))).await;
        } else if let Some(gave_up) = lock(self.reads).get_mut(&transfer)
            && !std::mem::replace(gave_up, true)
        {
            Counts::add(&self.shared.counts.cancelled);
        }
    }

    fn runs(&self, transfer: TransferId) -> bool {
        let reads = lock(self.reads);
        self.writes.contains_key(&transfer) || reads.contains_key(&transfer)
    }

    fn present(&self, page: RemoteSlice, access: Access) -> Result<Loan, Refusal> {
        self.shared.grants.present(&self.live.key.name, self.live.id, page, access)
    }

    async fn end_if_whole(&mut self, transfer: TransferId) {
        if self.writes.get(&transfer).is_some_and(|write| write.at == write.len)
            && let Some(write) = self.writes.remove(&transfer)
        {
            self.answer(Answer::Ack(transfer, write.to.err())).await;
        }
    }

    async fn answer(&self, answer: Answer) {
        if let Err(mpsc::error::TrySendError::Full(answer)) = self.answers.try_send(answer) {
            // Nothing is read meanwhile: that what we send is taken must do as a sign of life.
            self.live.pulse.watch_sends(true);
            // The writing half is a part of the same task: it is gone only when this is.
            let _ = self.answers.send(answer).await;
            self.live.pulse.watch_sends(false);
        }
    }
}

/// Sends answers until the socket breaks, or until it is to say goodbye and has done so.
async fn write(
    live: &Live,
    codec: Codec,
    mut answers: mpsc::Receiver<Answer>,
    reads: &Reads,
    to: &mut (impl AsyncWrite + Unpin),
    mut goodbye: watch::Receiver<Option<Farewell>>,
) {
    let mut out = Vec::new();
    loop {
        let farewell = *goodbye.borrow();
        if let Some(farewell) = farewell {
            codec.encode(&Frame::Goodbye { code: farewell as u8 }, &mut out);
            if flush(live, &mut out, to).await {
                let _ = to.shutdown().await;
            }
            return;
        }
        let answer = tokio::select! {
            answer = answers.recv() => answer,
            _ = goodbye.changed() => continue,
        };
        let Some(answer) = answer else {
            if goodbye.borrow().is_some() {
                continue;
            }
            return;
        };
        match answer {
            Answer::Ack(transfer, refusal) => codec.encode(&Frame::Ack { transfer, refusal }, &mut out),
            Answer::Pong(nonce) => codec.encode(&Frame::Pong(nonce), &mut out),
            Answer::Ping => codec.encode(&Frame::Ping(0), &mut out),
            Answer::Page(transfer, loan) => {
                let mut at = 0;
                let refusal = loop {
                    if at == loan.len() {
                        break None;
                    }
                    if lock(reads).get(&transfer) == Some(&true) {
                        break Some(Refusal::Cancelled);
                    }
                    if goodbye.borrow().is_some() {
                        break Some(Refusal::Revoked);
                    }
                    match chunk(codec, transfer, &loan, &mut at, &mut out) {
                        Ok(()) => {}
                        Err(refusal) => break Some(refusal),
                    }
                    if !flush(live, &mut out, to).await {
                        return;
                    }
                };
                lock(reads).remove(&transfer);
                codec.encode(&Frame::Ack { transfer, refusal }, &mut out);
            }
        }
        if answers.is_empty() && !flush(live, &mut out, to).await {
            return;
        }
    }
}

/// Appends the next bytes of a page; nothing if the loan is over.
fn chunk(codec: Codec, transfer: TransferId, loan: &Loan, at: &mut usize, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let (before, len) = (out.len(), CHUNK.min(loan.len() - *at));
    codec.begin_data(Direction::Read, transfer, len, out);
    let start = out.len();
    out.resize(start + len, 0);
    if let Err(refusal) = loan.read(*at, &mut out[start..]) {
        out.truncate(before);
        return Err(refusal);
    }
    *at += len;
    Ok(())
}

async fn flush(live: &Live, out: &mut Vec<u8>, to: &mut (impl AsyncWrite + Unpin)) -> bool {
    let sent = to.write_all(out).await.is_ok();
    live.pulse.sent();
    live.sent.fetch_add(out.len() as u64, Ordering::Relaxed);
    out.clear();
    sent
}
