//! The thread's part in the transfers that we asked for: what owners of pages say, what is under way, and whose turn it is.

use super::super::endpoint::{Access, EndpointKey, Origin, Page};
use super::super::message::{Go, Head, Kind, decode_transfer, encode_transfers};
use super::super::native::Status;
use super::super::outgoing::Sent;
use super::super::pieces::Misplaced;
use super::{Outbound, Thread};
use crate::grant::Refusal;
use crate::transfer::{Outcome, TransferError, TransferId, TransferKind};
use std::sync::Arc;

impl Thread {
    pub(super) fn refused(&mut self, from: EndpointKey, id: TransferId, body: &[u8]) {
        let Some(outbound) = self.outbound.get_mut(&from) else { return };
        let refusal = body.first().and_then(|code| Refusal::from_code(*code)).unwrap_or(Refusal::NoSuchGrant);
        if let Some(post) = outbound.link.answered(id, false) {
            post.completion.complete(Outcome::Failed(TransferError::Refused(refusal)));
        }
        let ended = outbound.moving.refused(id, refusal);
        self.ended(from, ended);
    }

    /// Bytes of a page that we read.
    pub(super) fn came(&mut self, from: EndpointKey, head: Head, bytes: &[u8]) {
        let Some(Outbound { link, moving, .. }) = self.outbound.get_mut(&from) else { return };
        let id = TransferId(head.number);
        if let Some(post) = link.answered(id, true) {
            if post.kind == TransferKind::Write {
                // It was asked to take the page.
                link.ran();
                post.completion.complete(Outcome::Failed(TransferError::NotSent));
            } else if post.completion.begins() {
                moving.read(post);
            } else {
                link.ran();
                post.completion.complete(Outcome::Failed(TransferError::NotSent));
            }
        }
        match moving.came(id, head.offset, bytes) {
            Ok(ended) => self.ended(from, ended),
            Err(Misplaced) => {
                let error = link.misbehaved();
                self.fail(from, error);
            }
        }
    }

    /// What we wrote is in its pages.
    pub(super) fn landed(&mut self, from: EndpointKey, mut body: &[u8]) {
        let Some(Outbound { link, moving, .. }) = self.outbound.get_mut(&from) else { return };
        let mut ended = 0;
        while let Some(id) = decode_transfer(&mut body) {
            match moving.landed(id) {
                Ok(more) => ended += more,
                Err(Misplaced) => {
                    let error = link.misbehaved();
                    return self.fail(from, error);
                }
            }
        }
        self.ended(from, ended);
    }

    /// Sends pieces of pages where they may go. Answers whether there were any.
    pub(super) fn send_pages(&mut self) -> bool {
        let endpoints = std::mem::take(&mut self.to_send);
        let any = !endpoints.is_empty();
        for key in endpoints {
            let mut sent = Vec::new();
            let (outcome, more) = if let Some(inbound) = self.inbound.get_mut(&key) {
                (inbound.send_pages(&mut sent), inbound.outgoing.may_go())
            } else if let Some(Outbound { link, endpoint, outgoing, .. }) = self.outbound.get_mut(&key) {
                (outgoing.send(endpoint, link.generation, &mut sent), outgoing.may_go())
            } else {
                continue;
            };
            sent.into_iter().for_each(|sent| self.left(key, sent));
            match outcome {
                Ok(()) => self.to_send.extend(more.then_some(key)),
                Err(status) => self.broke(key, status),
            }
        }
        any
    }

    /// libucp no longer touches this piece.
    pub(super) fn piece(&mut self, of: Origin, page: Arc<Page>, len: usize) {
        let Some(key) = self.find(of) else { return };
        let outgoing = match (self.inbound.get_mut(&key), self.outbound.get_mut(&key)) {
            (Some(inbound), _) => &mut inbound.outgoing,
            (_, Some(outbound)) => &mut outbound.outgoing,
            (None, None) => return,
        };
        let sent = outgoing.ended(page, len);
        self.to_send.extend(outgoing.may_go().then_some(key));
        self.left(key, sent);
    }

    /// Bytes of a page have left, for a write of ours or for a peer's read.
    fn left(&mut self, key: EndpointKey, Sent { transfer, len, whole }: Sent) {
        if let Some(inbound) = self.inbound.get_mut(&key) {
            if whole {
                inbound.sent(transfer);
            }
        } else if let Some(outbound) = self.outbound.get_mut(&key) {
            outbound.moving.left(transfer, len);
            let ended = if whole { outbound.moving.sent(transfer) } else { 0 };
            self.ended(key, ended);
        }
    }

    /// The peer lets us read or write its pages.
    pub(super) fn goes(&mut self, from: EndpointKey, mut body: &[u8]) {
        while !body.is_empty() {
            match (Go::decode(&mut body), self.outbound.get(&from)) {
                (Some(go), _) => self.go(from, go),
                (None, Some(outbound)) => {
                    let error = outbound.link.misbehaved();
                    return self.fail(from, error);
                }
                (None, None) => return,
            }
        }
    }

    fn go(&mut self, from: EndpointKey, Go { transfer: id, address, key }: Go<'_>) {
        let Some(outbound) = self.outbound.get_mut(&from) else { return };
        let link = outbound.link.clone();
        let Some(post) = link.answered(id, true) else {
            // It was given up meanwhile, and nothing was moved.
            return self.over(from, id);
        };
        let one_sided = link.one_sided && !key.is_empty();
        if !one_sided && post.kind == TransferKind::Read {
            link.ran();
            post.completion.complete(Outcome::Failed(TransferError::NotSent));
            return self.fail(from, link.misbehaved()); // It was asked to send the page.
        }
        if !post.completion.begins() {
            link.ran();
            self.over(from, id);
            return post.completion.complete(Outcome::Failed(TransferError::NotSent));
        }
        if !one_sided {
            outbound.moving.write(id, post.completion);
            outbound.outgoing.push(Page { transfer: id, part: post.local, _loan: None });
            self.to_send.insert(from);
            return;
        }
        let Ok(key) = outbound.endpoint.unpack(key) else {
            link.ran();
            post.completion.complete(Outcome::Failed(TransferError::NotSent));
            return self.fail(from, link.misbehaved());
        };
        let access = Access {
            link,
            of: outbound.endpoint.origin(),
            id,
            kind: post.kind,
            mapped: self.shared.registered(post.local.region().id()),
            local: post.local,
            address,
            completion: post.completion,
            flushing: false,
            key: Some(key),
        };
        match outbound.endpoint.access(access) {
            Ok(None) => {}
            Ok(Some(access)) => self.accessed(access, Ok(())),
            Err((status, Access { link, completion, .. })) => {
                link.ran();
                completion.complete(Outcome::Failed(TransferError::NotSent));
                self.over(from, id);
                self.broke(from, status);
            }
        }
    }

    /// A read, a write or its flush has ended here.
    pub(super) fn accessed(&mut self, mut access: Access, mut outcome: Result<(), Status>) {
        if outcome.is_ok() && access.kind == TransferKind::Write && !access.flushing {
            // Sent is not written: what is flushed is.
            access.flushing = true;
            if let Some(outbound) = self.find(access.of).and_then(|key| self.outbound.get(&key)) {
                (access, outcome) = match outbound.endpoint.access(access) {
                    Ok(None) => return,
                    Ok(Some(access)) => (access, Ok(())),
                    Err((status, access)) => (access, Err(status)),
                };
            } else {
                outcome = Err(Status(peerage_ucx_sys::UCS_ERR_CANCELED));
            }
        }
        let Access { link, of, id, local, completion, mapped, key, .. } = access;
        drop((key, mapped));
        completion.progress(if outcome.is_ok() { local.len() as u64 } else { 0 });
        completion.complete(if outcome.is_ok() { Outcome::Done } else { Outcome::Unknown });
        link.ran();
        match (outcome, self.find(of)) {
            (Ok(()), Some(endpoint)) => self.over(endpoint, id),
            (Err(status), Some(endpoint)) => self.broke(endpoint, status),
            (_, None) => {}
        }
    }

    /// So many transfers that ran have ended, and others may have their turn.
    fn ended(&mut self, of: EndpointKey, transfers: usize) {
        if let Some(outbound) = self.outbound.get(&of) {
            (0..transfers).for_each(|_| outbound.link.ran());
            self.to_tell.entry(of).or_default();
        }
    }

    fn over(&mut self, to: EndpointKey, id: TransferId) {
        self.to_tell.entry(to).or_default().push(id);
    }

    /// Tells the owners of pages what we no longer access, and goes on with the next: a message each, for all of a round.
    pub(super) fn tell(&mut self) {
        for (to, over) in std::mem::take(&mut self.to_tell) {
            let Some(Outbound { link, endpoint, .. }) = self.outbound.get(&to) else { continue };
            let say = |kind, body: &[u8]| match body {
                [] => Ok(()),
                body => endpoint.send(Head::new(kind, link.generation, 0), body),
            };
            if let Err(status) = say(Kind::Over, &encode_transfers(&over)).and_then(|()| say(Kind::Ask, &link.turns()))
            {
                self.broke(to, status);
            }
        }
    }
}
