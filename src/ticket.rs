//! Proof of being elected to connect, and what the connecting thread does with it.

use crate::builder::FOREVER;
use crate::error::{ReadyError, Reason, SharedError};
use crate::name::{Incarnation, PeerName};
use crate::shared::{Shared, Sink};
use crate::slot::SlotRef;
use crate::slow::{Blame, Elected, Failure, ToClose, locked};
use crate::state::{Generation, Phase, Word};
use crate::transport::{
    Address, CloseReason, ConnectContext, Connected, ErrorClass, ReportSink, Reporter, Transport, TransportError,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The right and the duty to end one attempt: publish, fail, or drop, which fails it too.
pub(crate) struct Ticket<T: Transport> {
    shared: Arc<Shared<T>>,
    slot: SlotRef<T>,
    name: PeerName,
    address: Arc<T::Address>,
    generation: Generation,
    deadline: Instant,
    cancelled: Arc<AtomicBool>,
    ended: bool,
}

impl<T: Transport> Ticket<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, slot: SlotRef<T>, elected: Elected<T::Address>) -> Self {
        let Elected { generation, name, address, deadline, cancelled } = elected;
        Ticket { shared, slot, name, address, generation, deadline, cancelled, ended: false }
    }

    /// The whole attempt, on a connecting thread.
    pub(crate) fn connect(mut self) {
        if self.slot.word() != Word::new(self.generation, Phase::Connecting) {
            self.shared.counters.elected_without_connect();
            return; // dropped: the attempt ends, if it has not yet
        }
        let sink: Weak<Shared<T>> = Arc::downgrade(&self.shared);
        let sink: Arc<dyn ReportSink> = Arc::new(Sink(sink));
        let reporter = Reporter::new(sink, self.slot.id(), self.generation);
        let named = self.address.incarnation(); // the user's code: before there is a connection to lose
        let cx = ConnectContext::new(self.name.clone(), self.deadline, self.cancelled.clone(), reporter);
        let connected = catch_unwind(AssertUnwindSafe(|| self.shared.transport.connect(&cx, &self.address)));
        match connected {
            Ok(Ok(connected)) => self.connected(connected, named),
            Ok(Err(error)) => {
                let failure = self.failure(error);
                self.fail(failure);
            }
            Err(panic) => {
                let failure = self.panicked(&*panic);
                self.fail(failure);
            }
        }
    }

    fn connected(mut self, connected: Connected<T::Connection>, named: Option<Incarnation>) {
        let Connected { connection, incarnation } = connected;
        if let (Some(named), Some(known)) = (named, incarnation)
            && named != known
        {
            let outcome = ReadyError::WrongIncarnation { peer: self.name.clone(), named, known };
            let text = outcome.to_string().into();
            let failure = Failure { reason: Reason::WrongIncarnation, text, outcome, blame: Blame::Peer };
            self.ended = true;
            locked(&self.slot, |slow| slow.fail(self.generation, failure));
            return self.close(connection, CloseReason::WrongIncarnation);
        }
        self.ended = true;
        let published = locked(&self.slot, |slow| slow.publish(self.generation, connection, incarnation));
        if let Err(late) = published {
            self.close(late, CloseReason::Superseded);
        }
    }

    /// Closes what this attempt made; only then has its native connect returned.
    fn close(&mut self, connection: T::Connection, why: CloseReason) {
        let job = self.shared.next_job();
        let (name, generation) = (self.name.clone(), self.generation);
        let close = ToClose { name, generation, bay: None, connection, why, job };
        crate::close::submit(&self.shared, &self.slot, close);
    }

    fn fail(&mut self, failure: Failure) {
        self.ended = true;
        locked(&self.slot, |slow| {
            slow.fail(self.generation, failure);
            slow.connect_returned(self.generation);
        });
    }

    fn failure(&self, error: T::Error) -> Failure {
        let native = error.native_code();
        let (reason, blame) = match error.class() {
            ErrorClass::Busy { retry_after } => (Reason::ConnectFailed(native), Blame::Busy(retry_after.min(FOREVER))),
            ErrorClass::Local => (Reason::ConnectFailed(native), Blame::Local),
            ErrorClass::Incompatible => (Reason::Incompatible, Blame::Incompatible),
            ErrorClass::PeerBroken | ErrorClass::OutcomeUnknown => (Reason::ConnectFailed(native), Blame::Peer),
        };
        let text = error.to_string().into();
        let error = SharedError(Arc::new(error));
        let outcome = ReadyError::Failed { peer: self.name.clone(), generation: self.generation, error };
        Failure { reason, text, outcome, blame }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> Failure {
        let message: Arc<str> = panic_message(panic).into();
        let outcome = ReadyError::Panicked { peer: self.name.clone(), message: message.clone() };
        Failure { reason: Reason::ConnectFailed(None), text: message, outcome, blame: Blame::Peer }
    }
}

impl<T: Transport> Drop for Ticket<T> {
    fn drop(&mut self) {
        if !self.ended {
            let message: Arc<str> = "the attempt was given up before it connected".into();
            let (peer, generation) = (self.name.clone(), self.generation);
            let outcome = ReadyError::Reported { peer, generation, error: message.clone() };
            let reason = Reason::ConnectFailed(None);
            self.fail(Failure { reason, text: message, outcome, blame: Blame::Peer });
        }
    }
}

/// What a panic said, as far as it said it in text.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a text",
    }
}
