//! Proof of being elected to connect: of a connecting thread, which then makes the whole attempt, or of a user who connects
//! by themselves.

use crate::builder::FOREVER;
use crate::error::{NotElected, PublishError, ReadyError, Reason, SharedError};
use crate::name::Incarnation;
use crate::peer::Peer;
use crate::report::Sink;
use crate::shared::Shared;
use crate::slot::SlotRef;
use crate::slow::{Blame, Elected, Failure, ToClose, locked};
use crate::state::{Generation, Phase, Word};
use crate::sync::caught;
use crate::transport::{
    Address, CloseReason, ConnectContext, Connected, ErrorClass, ReportSink, Reporter, Transport, TransportError,
};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The right and the duty to make one attempt: [`publish`](Self::publish) it, [`fail`](Self::fail) it, or drop the ticket,
/// which fails it too. Past its deadline the attempt has failed, whatever its owner does.
///
/// While a ticket exists no other connect of its peer starts, also when its attempt has ended long ago: a native call may
/// still run. A ticket that is forgotten (`mem::forget`) blocks its peer for ever, and no other;
/// [`PeerStatus::connecting`](crate::PeerStatus::connecting) shows it.
#[must_use = "dropping a ticket fails its attempt"]
pub struct Ticket<T: Transport> {
    shared: Arc<Shared<T>>,
    slot: SlotRef<T>,
    address: Arc<T::Address>,
    context: ConnectContext,
    /// The incarnation its address names: asked before there is a connection to lose.
    named: Option<Incarnation>,
    ended: bool,
}

impl<T: Transport> Peer<T> {
    /// Elects the caller to connect this peer, on a thread of its own choosing, whether or not somebody has asked for a
    /// connect. Everybody who waits for the peer gets the outcome. Never waits for a native call.
    ///
    /// ```
    /// # use peerage::{NotElected, Peer, PeerTable, Transport};
    /// fn connect_here<T: Transport>(table: &PeerTable<T>, peer: &Peer<T>) -> Result<(), NotElected> {
    ///     let ticket = peer.try_elect()?;
    ///     match table.transport().connect(ticket.context(), ticket.address()) {
    ///         Ok(connected) => drop(ticket.publish(connected)), // who waits is told
    ///         Err(error) => ticket.fail(error),
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`NotElected`]: the peer is ready, somebody else connects it, or no attempt may start now.
    pub fn try_elect(&self) -> Result<Ticket<T>, NotElected> {
        if !self.slot().is_here() {
            return Err(ReadyError::UsedAfterFork { peer: self.name().clone() }.into());
        }
        let elected = locked(self.slot(), |lane| lane.try_elect())?;
        let shared = self.slot().table();
        shared.counters.elected();
        let mut ticket = Ticket::new(shared, self.slot().clone(), elected);
        ticket.named = ticket.address.incarnation();
        Ok(ticket)
    }
}

impl<T: Transport> Ticket<T> {
    /// The generation this attempt makes.
    pub fn generation(&self) -> Generation {
        self.context.generation()
    }

    /// Where to connect to.
    pub fn address(&self) -> &T::Address {
        &self.address
    }

    /// What the transport's `connect` gets: the peer's name, the deadline, a reporter for errors of native threads.
    pub fn context(&self) -> &ConnectContext {
        &self.context
    }

    /// When the attempt fails if it has not ended, by the table's clock.
    pub fn deadline(&self) -> Instant {
        self.context.deadline()
    }

    /// Whether nobody wants this connection any more: the attempt expired or was reported, its peer got another address or is
    /// being removed, or this process took another boot id.
    pub fn is_cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    /// Makes the connection the peer's current one; from here on leases are granted. Does not wait.
    ///
    /// # Errors
    /// [`PublishError`]: the attempt had ended. The connection was taken, and is closed on a closing thread; until then no
    /// other connect of this peer starts.
    pub fn publish(mut self, connected: Connected<T::Connection>) -> Result<Generation, PublishError> {
        let Connected { connection, incarnation } = connected;
        let (name, generation) = (self.context.name().clone(), self.generation());
        self.ended = true;
        if !self.slot.is_here() {
            std::mem::forget(connection); // it may be the parent's
            return Err(PublishError::UsedAfterFork { peer: name });
        }
        if let (Some(named), Some(known)) = (self.named, incarnation)
            && named != known
        {
            let outcome = ReadyError::WrongIncarnation { peer: name.clone(), named, known };
            let text = outcome.to_string().into();
            let failure =
                Failure { reason: Reason::WrongIncarnation, text, outcome, blame: Blame::Peer, process_is_gone: false };
            locked(&self.slot, |slow| slow.fail(generation, failure));
            self.close(connection, CloseReason::WrongIncarnation);
            return Err(PublishError::WrongIncarnation { peer: name, named, known });
        }
        match locked(&self.slot, |slow| slow.publish(generation, connection, incarnation)) {
            Ok(()) => Ok(generation),
            Err(late) => {
                let phase = self.slot.word().phase(); // before the close, after which the next attempt may begin
                self.close(late, CloseReason::Superseded);
                Err(PublishError::Superseded { peer: name, generation, phase })
            }
        }
    }

    /// Ends the attempt with a transport's error, whose class decides about the backoff. Nothing may be left of what was
    /// begun. Who waits gets the error.
    pub fn fail(mut self, error: T::Error) {
        let failure = self.failure(error);
        self.end(failure);
    }

    pub(crate) fn new(shared: Arc<Shared<T>>, slot: SlotRef<T>, elected: Elected<T::Address>) -> Self {
        let Elected { generation, name, address, deadline, cancelled } = elected;
        let sink: Weak<Shared<T>> = Arc::downgrade(&shared);
        let sink: Arc<dyn ReportSink> = Arc::new(Sink(sink));
        let reporter = Reporter::new(sink, slot.id(), generation);
        let context = ConnectContext::new(name, deadline, cancelled, reporter);
        Ticket { shared, slot, address, context, named: None, ended: false }
    }

    /// The whole attempt, on a connecting thread.
    pub(crate) fn connect(mut self) {
        if self.slot.word() != Word::new(self.generation(), Phase::Connecting) {
            self.shared.counters.elected_without_connect();
            return; // dropped: the attempt ends, if it has not yet
        }
        self.named = self.address.incarnation();
        let connect = || self.shared.transport.connect(&self.context, &self.address);
        match caught(connect) {
            Ok(Ok(connected)) => drop(self.publish(connected)), // who waits is told
            Ok(Err(error)) => self.fail(error),
            Err(panic) => {
                let failure = self.panicked(panic);
                self.end(failure);
            }
        }
    }

    /// Closes what this attempt made; only then has its native connect returned.
    fn close(&self, connection: T::Connection, why: CloseReason) {
        let job = self.shared.next_job();
        let (name, generation) = (self.context.name().clone(), self.generation());
        let close = ToClose { name, generation, bay: None, connection, why, job };
        crate::close::submit(&self.shared, &self.slot, close);
    }

    fn end(&mut self, failure: Failure) {
        self.ended = true;
        if !self.slot.is_here() {
            return; // the attempt is the parent's
        }
        let generation = self.generation();
        locked(&self.slot, |slow| {
            slow.fail(generation, failure);
            slow.connect_returned(generation);
        });
    }

    fn failure(&self, error: T::Error) -> Failure {
        let (native, process_is_gone) = (error.native_code(), error.process_is_gone());
        let (reason, blame) = match error.class() {
            ErrorClass::Busy { retry_after } => (Reason::ConnectFailed(native), Blame::Busy(retry_after.min(FOREVER))),
            ErrorClass::Local => (Reason::ConnectFailed(native), Blame::Local),
            ErrorClass::Incompatible => (Reason::Incompatible, Blame::Incompatible),
            ErrorClass::PeerBroken | ErrorClass::OutcomeUnknown => (Reason::ConnectFailed(native), Blame::Peer),
        };
        let text = error.to_string().into();
        let error = SharedError(Arc::new(error));
        let outcome = ReadyError::Failed { peer: self.context.name().clone(), generation: self.generation(), error };
        Failure { reason, text, outcome, blame, process_is_gone }
    }

    fn panicked(&self, message: Arc<str>) -> Failure {
        let outcome = ReadyError::Panicked { peer: self.context.name().clone(), message: message.clone() };
        Failure {
            reason: Reason::ConnectFailed(None),
            text: message,
            outcome,
            blame: Blame::Peer,
            process_is_gone: false,
        }
    }
}

impl<T: Transport> Drop for Ticket<T> {
    fn drop(&mut self) {
        if !self.ended {
            let message: Arc<str> = "the attempt was given up before it connected".into();
            let (peer, generation) = (self.context.name().clone(), self.generation());
            let outcome = ReadyError::Reported { peer, generation, error: message.clone() };
            let reason = Reason::ConnectFailed(None);
            self.end(Failure { reason, text: message, outcome, blame: Blame::Peer, process_is_gone: false });
        }
    }
}

impl<T: Transport> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("context", &self.context).finish_non_exhaustive()
    }
}
