//! A native close, on a closing thread.

use crate::lane::{CLOSE_AGAIN, CloseEnded};
use crate::shared::Shared;
use crate::slot::SlotRef;
use crate::slow::{ToClose, locked};
use crate::sync::caught;
use crate::transfer::Outcome;
use crate::transport::{Capabilities, CloseContext, Closed, Transport};
use std::sync::Arc;
use std::thread;

/// Hands a connection to the closing threads. Never waits.
pub(crate) fn submit<T: Transport>(shared: &Arc<Shared<T>>, slot: &SlotRef<T>, close: ToClose<T::Connection>) {
    let (home, slot) = (shared.clone(), slot.clone());
    shared.close_connection(close.why, close.job, Box::new(move || run(&home, &slot, close)));
}

fn run<T: Transport>(shared: &Shared<T>, slot: &SlotRef<T>, close: ToClose<T::Connection>) {
    let ToClose { name, generation, bay, connection, why, job: _ } = close;
    let started = shared.clock.now();
    let mut connection = Some(connection);
    while let Some(this) = connection.take() {
        let deadline = shared.clock.now() + shared.config.close_timeout;
        let cx = CloseContext { name: name.clone(), generation, deadline };
        let closed = caught(|| shared.transport.disconnect(&cx, this, why));
        let ended = match closed {
            Ok(Closed::Released | Closed::AlreadyGone) => CloseEnded::Closed,
            Ok(Closed::Leaked(why)) => CloseEnded::Leaked(why),
            Ok(Closed::Retry(rest)) => CloseEnded::Again(rest),
            Err(_) => CloseEnded::Leaked("the transport panicked while closing"),
        };
        let forget = match bay {
            Some(bay) => {
                if matches!(ended, CloseEnded::Closed) && shared.capabilities.contains(Capabilities::CLOSE_QUIESCES) {
                    quiesce(slot, bay);
                }
                locked(slot, |lane| lane.closed(bay, ended))
            }
            // It never was in a bay, so no lane waits for it but the next connect.
            None => match ended {
                CloseEnded::Again(rest) if shared.clock.now() < started + shared.config.drain_deadline => {
                    thread::sleep(CLOSE_AGAIN);
                    connection = Some(rest);
                    None
                }
                ended => {
                    let (leaked, forget) = match ended {
                        CloseEnded::Closed => (None, None),
                        CloseEnded::Leaked(why) => (Some(why), None),
                        CloseEnded::Again(rest) => (Some("the native side refused to close it"), Some(rest)),
                    };
                    locked(slot, |lane| {
                        lane.leaked(leaked);
                        lane.connect_returned(generation);
                    });
                    forget
                }
            },
        };
        // A connection that may not be closed may not be dropped: its destructor may close it.
        if let Some(connection) = forget {
            std::mem::forget(connection);
        }
    }
}

/// The close has quiesced what was outstanding: it ends for its callers and gives its pages back.
fn quiesce<T: Transport>(slot: &SlotRef<T>, bay: usize) {
    for transfer in slot.in_flight.of_bay(bay) {
        transfer.end(Outcome::Unknown);
        transfer.quiesce();
    }
}
