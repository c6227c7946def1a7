//! Promise 7, for connections of several parts: a stage that fails undoes those before it, and what stays over is counted.

use crate::common::*;
use peerage::transport::{Staged, Stages};
use peerage::{
    Backoff, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, PeerTable, ReadyError,
    Removed, Transport,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The stages that are open, and what the next ones are to do.
#[derive(Clone, Default)]
struct Plan(Arc<Mutex<Stand>>);

#[derive(Default)]
struct Stand {
    open: Vec<&'static str>,
    fails: Option<&'static str>,
    hangs_on: Option<&'static str>,
}

impl Plan {
    fn fails(&self, stage: &'static str) {
        self.0.lock().unwrap().fails = Some(stage);
    }

    fn hangs_on(&self, stage: &'static str) {
        self.0.lock().unwrap().hangs_on = Some(stage);
    }

    fn open(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().open.clone()
    }
}

/// Connects in three stages.
struct InStages(Plan);

impl Transport for InStages {
    type Address = Place;
    type Connection = Staged<[&'static str; 3]>;
    type Error = Never;

    fn capabilities(&self) -> Capabilities {
        Capabilities::NATIVE_CLOSE.with(Capabilities::CLOSE_QUIESCES)
    }

    fn connect(&self, cx: &ConnectContext, _: &Place) -> Result<Connected<Self::Connection>, Never> {
        let mut stages = Stages::new(cx);
        let mut made = [""; 3];
        for (at, name) in ["control", "channel", "registration"].into_iter().enumerate() {
            made[at] = stages.add(name, || {
                let mut plan = self.0.0.lock().unwrap();
                if plan.fails.take_if(|stage| *stage == name).is_some() {
                    return Err(Never);
                }
                plan.open.push(name);
                let plan = self.0.clone();
                let take_back = move || {
                    let mut plan = plan.0.lock().unwrap();
                    if plan.hangs_on.take_if(|stage| *stage == name).is_some() {
                        return Err("it hangs on");
                    }
                    plan.open.retain(|open| *open != name);
                    Ok(())
                };
                Ok((name, take_back))
            })?;
        }
        Ok(Connected { connection: stages.finish(made), incarnation: None })
    }

    fn disconnect(&self, _: &CloseContext, connection: Self::Connection, _: CloseReason) -> Closed<Self::Connection> {
        connection.take_back()
    }
}

/// fails if: a failed attempt leaves stages open, a close does, or neither counts what it could not take back.
#[test]
fn a_connection_of_stages_is_undone_whole_and_a_stage_that_stays_over_is_counted() {
    let plan = Plan::default();
    let short = Duration::from_millis(1);
    let backoff = Backoff { base: short, cap: short, ..Backoff::default() };
    let table = PeerTable::builder(InStages(plan.clone())).backoff(backoff).breaker(None).build().unwrap();
    let peer = table.insert("p", Place("here")).unwrap();
    plan.fails("registration");
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
    assert_eq!((plan.open(), table.snapshot().leaked), (vec![], 0));

    ready_again(&peer);
    assert_eq!(plan.open(), ["control", "channel", "registration"]);
    assert_eq!(**peer.lease().unwrap(), ["control", "channel", "registration"]);
    peer.report(peer.generation(), &broken());
    eventually("it is closed", || plan.open().is_empty());

    plan.fails("registration");
    plan.hangs_on("channel");
    eventually("an attempt fails", || matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
    assert_eq!((plan.open(), table.snapshot().leaked), (vec!["channel"], 1));
    ready_again(&peer);
    plan.hangs_on("control");
    assert_eq!(block_on(peer.remove(far())), Removed::Leaked("it hangs on"));
    assert_eq!(table.snapshot().leaked, 2);
}
