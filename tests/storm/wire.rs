//! A transport in virtual time: a native connect returns when the test has moved the clock to its end, not before, on
//! whatever thread it runs. It keeps a log of its dials and checks that no peer has two of anything.

use peerage::{
    Address, Capabilities, Clock, CloseContext, CloseReason, Closed, ConnectContext, Connected, ErrorClass, Generation,
    Reported, Reporter, Transport, TransportError,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a refused connect takes.
const REFUSAL: Duration = Duration::from_millis(1);

pub(crate) struct Wire {
    clock: Clock,
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    /// Before this time connects are refused. `None`: connects take no time and none is logged.
    up_at: Option<Instant>,
    running: BTreeMap<(Instant, Generation), Dial>,
    /// Peers with a native connect that runs, and with a connection that is open.
    connecting: HashSet<usize>,
    open: HashMap<usize, Reporter>,
    log: Vec<Dial>,
    most_running: usize,
    doubles: usize,
}

/// One native connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dial {
    pub(crate) peer: usize,
    pub(crate) generation: Generation,
    pub(crate) at: Instant,
    pub(crate) ends: Instant,
    pub(crate) accepted: bool,
}

impl Wire {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State {
            up_at: None,
            running: BTreeMap::new(),
            connecting: HashSet::new(),
            open: HashMap::new(),
            log: Vec::new(),
            most_running: 0,
            doubles: 0,
        };
        Wire { clock, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// From here on connects take their time, and are refused before `up_at`.
    pub(crate) fn restart(&self, up_at: Instant) {
        self.lock().up_at = Some(up_at);
    }

    /// What an accepted connect to `peer` takes: 5 to 15 ms, 10 on average.
    pub(crate) fn connect_time(peer: usize) -> Duration {
        Duration::from_millis(5 + (peer as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 11)
    }

    /// The native side finds the connection to `peer` broken, and says so.
    pub(crate) fn break_connection(&self, peer: usize) -> Reported {
        let reporter = self.lock().open[&peer].clone();
        reporter.report(&Refused)
    }

    /// Lets the connects return whose time has come.
    pub(crate) fn end_due(&self) -> Vec<Dial> {
        let mut state = self.lock();
        let later = state.running.split_off(&(self.clock.now() + Duration::from_nanos(1), Generation(0)));
        let ended: Vec<_> = std::mem::replace(&mut state.running, later).into_values().collect();
        drop(state);
        if !ended.is_empty() {
            self.moved.notify_all();
        }
        ended
    }

    pub(crate) fn running(&self) -> usize {
        self.lock().running.len()
    }

    pub(crate) fn most_running(&self) -> usize {
        self.lock().most_running
    }

    pub(crate) fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Connects beside another connect, or beside an open connection, of the same peer.
    pub(crate) fn doubles(&self) -> usize {
        self.lock().doubles
    }

    pub(crate) fn dials(&self) -> usize {
        self.lock().log.len()
    }

    pub(crate) fn log(&self) -> Vec<Dial> {
        self.lock().log.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Transport for Wire {
    type Address = Place;
    type Connection = usize;
    type Error = Refused;

    /// The strictest kind: one native slot per peer.
    fn capabilities(&self) -> Capabilities {
        Capabilities::NATIVE_CLOSE
    }

    fn connect(&self, cx: &ConnectContext, to: &Place) -> Result<Connected<usize>, Refused> {
        let (peer, generation, at) = (to.0, cx.generation(), self.clock.now());
        let mut state = self.lock();
        state.doubles += usize::from(!state.connecting.insert(peer)) + usize::from(state.open.contains_key(&peer));
        let mut accepted = true;
        if let Some(up_at) = state.up_at {
            accepted = at >= up_at;
            let ends = at + if accepted { Wire::connect_time(peer) } else { REFUSAL };
            let dial = Dial { peer, generation, at, ends, accepted };
            state.log.push(dial);
            state.running.insert((ends, generation), dial);
            state.most_running = state.most_running.max(state.running.len());
            while state.running.contains_key(&(ends, generation)) {
                state = self.moved.wait(state).unwrap();
            }
        }
        state.connecting.remove(&peer);
        if !accepted {
            return Err(Refused);
        }
        state.open.insert(peer, cx.reporter().clone());
        Ok(Connected { connection: peer, incarnation: None })
    }

    fn disconnect(&self, _: &CloseContext, connection: usize, _: CloseReason) -> Closed<usize> {
        self.lock().open.remove(&connection);
        Closed::Released
    }
}

/// The number of a peer.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) usize);

impl Address for Place {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {}", self.0)
    }
}

#[derive(Debug)]
pub(crate) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody listens")
    }
}

impl std::error::Error for Refused {}

impl TransportError for Refused {
    fn class(&self) -> ErrorClass {
        ErrorClass::PeerBroken
    }
}
