//! The half that receives: what the peer answers to transfers and pings.

use crate::transfer::{Outcome, TransferError, TransferKind};
use crate::transport::frame::{Farewell, Frame};
use crate::transport::tcp::connection::Link;
use crate::transport::tcp::error::Misbehaviour;
use crate::transport::tcp::wire::{FrameReader, WireError};
use std::sync::atomic::Ordering;
use tokio::io::AsyncRead;

pub(super) async fn receive(link: &Link, from: &mut (impl AsyncRead + Unpin)) -> WireError {
    let mut frames = FrameReader::new(link.codec);
    loop {
        let taken = match frames.next(from).await {
            Ok((frame, _)) => take(link, frame),
            Err(error) => return error,
        };
        if let Err(error) = taken {
            return error;
        }
    }
}

pub(super) fn take(link: &Link, frame: Frame<'_>) -> Result<(), WireError> {
    match frame {
        Frame::Ack { transfer, refusal } => {
            let mut queue = link.lock();
            let running = queue.running.get(&transfer).ok_or(Misbehaviour::NoSuchTransfer { transfer })?;
            // A write that is still being cut into chunks still reads its pages, until it is given up; a read may be refused
            // half way.
            let whole = running.at == running.local.len();
            let gave_up = running.cancelled && refusal.is_some();
            if !whole && !gave_up && (running.kind == TransferKind::Write || refusal.is_none()) {
                return Err(Misbehaviour::WrongLength { transfer }.into());
            }
            let over = queue.running.remove(&transfer);
            drop(queue);
            let outcome = refusal.map_or(Outcome::Done, |refusal| Outcome::Failed(TransferError::Refused(refusal)));
            if let Some(running) = over {
                running.completion.complete(outcome);
            }
        }
        Frame::ReadData { transfer, bytes } => {
            let mut queue = link.lock();
            let running = queue.running.get_mut(&transfer).filter(|running| running.kind == TransferKind::Read);
            let running = running.ok_or(Misbehaviour::NoSuchTransfer { transfer })?;
            let (local, at) = (running.local.clone(), running.at);
            running.at += bytes.len();
            running.completion.progress(running.at as u64);
            drop(queue);
            local.write(at, bytes).map_err(|_| Misbehaviour::WrongLength { transfer })?;
        }
        Frame::Pong(nonce) => {
            // A ping of which no probe is left any more is answered too.
            link.lock().probes.retain(|probe| probe.ping != nonce || probe.pong.try_send(()).is_err());
        }
        Frame::Ping(nonce) => link.answer(nonce),
        Frame::Unknown { .. } => drop(link.unknown_frames.fetch_add(1, Ordering::Relaxed)),
        Frame::Goodbye { code } => return Err(WireError::Goodbye(Farewell::from_code(code))),
        _ => return Err(Misbehaviour::WrongSide.into()),
    }
    Ok(())
}
