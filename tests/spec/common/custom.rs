//! A transport that calls the test back, and notes which threads it is called on.

use peerage::{
    Address, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, ErrorClass, Transport,
    TransportError,
};
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;

type OnConnect = Box<dyn Fn(&ConnectContext) + Send + Sync>;
type OnClose = Box<dyn Fn(&CloseContext, CloseReason) + Send + Sync>;
type Seen = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Connects by calling `on_connect`, closes by calling `on_close`.
pub(crate) struct Custom {
    on_connect: OnConnect,
    on_close: OnClose,
    seen: Seen,
}

impl Custom {
    pub(crate) fn new(
        on_connect: impl Fn(&ConnectContext) + Send + Sync + 'static,
        on_close: impl Fn(&CloseContext, CloseReason) + Send + Sync + 'static,
    ) -> Self {
        Custom { on_connect: Box::new(on_connect), on_close: Box::new(on_close), seen: Seen::default() }
    }

    /// What was done on which thread, in order: `connect`, `disconnect`, and `drop` of a connection.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.clone()
    }
}

fn note(seen: &Seen, what: &'static str) {
    let thread = thread::current().name().unwrap_or_default().to_owned();
    seen.lock().unwrap().push((what, thread));
}

/// Tells who drops it.
pub(crate) struct Dropped(Seen);

impl Drop for Dropped {
    fn drop(&mut self) {
        note(&self.0, "drop");
    }
}

thread_local! { static ON_SHOW: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) } }

/// What this thread does when it next shows the place `"no text"`, before that panics.
pub(crate) fn on_show(hook: impl FnOnce() + 'static) {
    ON_SHOW.set(Some(Box::new(hook)));
}

/// Anywhere. At `"no text"` and `"no comparing"` it panics when it is shown or compared.
#[derive(Clone, Eq)]
pub(crate) struct Place(pub(crate) &'static str);

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        assert!(self.0 != "no comparing" && other.0 != "no comparing", "a test asked a comparison to panic");
        self.0 == other.0
    }
}

impl Address for Place {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == "no text" {
            if let Some(hook) = ON_SHOW.take() {
                hook();
            }
            panic!("a test asked Display to panic");
        }
        f.write_str(self.0)
    }
}

#[derive(Debug)]
pub(crate) struct Never;

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("never")
    }
}

impl std::error::Error for Never {}

impl TransportError for Never {
    fn class(&self) -> ErrorClass {
        ErrorClass::PeerBroken
    }
}

impl Transport for Custom {
    type Address = Place;
    type Connection = Dropped;
    type Error = Never;

    fn capabilities(&self) -> Capabilities {
        Capabilities::NATIVE_CLOSE.with(Capabilities::CLOSE_QUIESCES)
    }

    fn connect(&self, cx: &ConnectContext, _: &Place) -> Result<Connected<Dropped>, Never> {
        note(&self.seen, "connect");
        (self.on_connect)(cx);
        Ok(Connected { connection: Dropped(self.seen.clone()), incarnation: None })
    }

    fn disconnect(&self, cx: &CloseContext, _connection: Dropped, why: CloseReason) -> Closed<Dropped> {
        note(&self.seen, "disconnect");
        (self.on_close)(cx, why);
        Closed::Released
    }
}
