//! Connections made in stages: a control socket, then a channel, then a registration.
//!
//! A stage brings what takes it back. If a later one fails or panics, what is finished is taken back in reverse order, before
//! `connect` has returned: nobody has seen any of it. A connection that came about is taken back the same way by its close.

use super::{Closed, ConnectContext, Reporter};
use crate::fork::Process;
use crate::sync::caught;
use std::fmt;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

type TakeBack = Box<dyn FnOnce() -> Result<(), &'static str> + Send>;

/// The stages of one connection that are finished. Dropped before [`finish`](Self::finish), by an error or a panic in a later
/// stage, it takes them back, the last one first.
///
/// ```
/// # use peerage::transport::{Staged, Stages};
/// # use peerage::{CloseContext, Closed, ConnectContext, Connected};
/// # use std::io;
/// # struct Socket; struct Channel;
/// # impl Socket { fn open() -> io::Result<Socket> { Ok(Socket) } fn handle(&self) -> u32 { 1 } }
/// # fn close_socket(_: u32) {}
/// # impl Channel { fn over(_: &Socket) -> io::Result<Channel> { Ok(Channel) } fn handle(&self) -> u32 { 2 } }
/// # fn close_channel(_: u32) -> i32 { 0 }
/// struct Parts {
///     socket: Socket,
///     channel: Channel,
/// }
///
/// fn connect(cx: &ConnectContext) -> io::Result<Connected<Staged<Parts>>> {
///     let mut stages = Stages::new(cx);
///     let socket = stages.add("socket", || {
///         let socket = Socket::open()?;
///         let handle = socket.handle();
///         Ok::<_, io::Error>((socket, move || Ok(close_socket(handle))))
///     })?;
///     let channel = stages.add("channel", || {
///         let channel = Channel::over(&socket)?; // if this fails, the socket is closed
///         let handle = channel.handle();
///         Ok::<_, io::Error>((channel, move || match close_channel(handle) {
///             0 => Ok(()),
///             _ => Err("the channel was not closed"),
///         }))
///     })?;
///     Ok(Connected { connection: stages.finish(Parts { socket, channel }), incarnation: None })
/// }
///
/// fn disconnect(connection: Staged<Parts>) -> Closed<Staged<Parts>> {
///     connection.take_back() // the channel, then the socket
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it takes everything back"]
pub struct Stages {
    finished: Finished,
    reporter: Reporter,
}

impl Stages {
    /// Begins the attempt of `cx`, with nothing to take back.
    pub fn new(cx: &ConnectContext) -> Self {
        let finished = Finished { process: Process::this(), list: Mutex::default() };
        Stages { finished, reporter: cx.reporter().clone() }
    }

    /// Makes the next stage, on this thread, and answers what `make` made. It also says how to take the stage back: an
    /// error, or a panic, of that means that it is leaked. `name` is what a panic of it is called in
    /// [`Closed::Leaked`].
    ///
    /// # Errors
    /// That of `make`. Return it from `connect`: the stages before are taken back when this is dropped.
    pub fn add<V, U, E>(&mut self, name: &'static str, make: impl FnOnce() -> Result<(V, U), E>) -> Result<V, E>
    where
        U: FnOnce() -> Result<(), &'static str> + Send + 'static,
    {
        let (value, take_back) = make()?;
        self.finished.list().push((name, Box::new(take_back)));
        Ok(value)
    }

    /// The whole connection. From here on its close takes the stages back.
    pub fn finish<C>(mut self, connection: C) -> Staged<C> {
        let list = std::mem::take(self.finished.list());
        let finished = Finished { process: self.finished.process, list: Mutex::new(list) };
        Staged { finished, connection }
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        if let Some(why) = self.finished.take_back() {
            self.reporter.leaked(why);
        }
    }
}

/// A connection made in [`Stages`]. Dereferences to what it was finished with. Dropped without
/// [`take_back`](Self::take_back), it takes the stages back all the same, and nobody is told of what leaked.
#[derive(Debug)]
pub struct Staged<C> {
    finished: Finished,
    connection: C,
}

impl<C> Staged<C> {
    /// Takes every stage back, the last one first, also those before one that fails or panics. For
    /// [`disconnect`](super::Transport::disconnect). May block as the stages do. [`Closed::Released`], or
    /// [`Closed::Leaked`] with what the first of them said that failed, or the name of the stage if it panicked.
    pub fn take_back(mut self) -> Closed<Self> {
        self.finished.take_back().map_or(Closed::Released, Closed::Leaked)
    }
}

impl<C> Deref for Staged<C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C> Drop for Staged<C> {
    fn drop(&mut self) {
        self.finished.take_back();
    }
}

struct Finished {
    /// In a forked child nothing is taken back: it is the parent's.
    process: Process,
    /// Never locked: behind a mutex, because what takes a stage back need not be `Sync`.
    list: Mutex<Vec<(&'static str, TakeBack)>>,
}

impl Finished {
    fn list(&mut self) -> &mut Vec<(&'static str, TakeBack)> {
        self.list.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers why, if something leaked.
    fn take_back(&mut self) -> Option<&'static str> {
        let list = std::mem::take(self.list());
        if !self.process.is_this() {
            std::mem::forget(list);
            return Some("used after fork");
        }
        let mut leaked = None;
        for (name, take_back) in list.into_iter().rev() {
            if let Err(why) = caught(take_back).unwrap_or(Err(name)) {
                leaked.get_or_insert(why);
            }
        }
        leaked
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::name::{PeerId, PeerName};
    use crate::state::Generation;
    use crate::transport::context::ReportSink;
    use crate::transport::{Reported, TransportError};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];

    /// A table that is told of leaks.
    #[derive(Default)]
    struct Told(Mutex<Vec<&'static str>>);

    impl ReportSink for Told {
        fn report(&self, _: PeerId, _: Generation, _: &dyn TransportError) -> Reported {
            Reported::Stale
        }
        fn leaked(&self, _: PeerId, why: &'static str) {
            self.0.lock().unwrap().push(why);
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Ends {
        Well,
        InError,
        InPanic,
    }
    use Ends::{InError, InPanic, Well};

    fn end<V>(how: Ends, well: V, error: &'static str) -> Result<V, &'static str> {
        match how {
            Well => Ok(well),
            InError => Err(error),
            InPanic => resume_unwind(Box::new("planted")),
        }
    }

    /// What happened, in order, and what the table was told.
    struct Seen {
        steps: Arc<Mutex<Vec<String>>>,
        told: Arc<Told>,
    }

    impl Seen {
        fn new() -> Self {
            Seen { steps: Arc::default(), told: Arc::default() }
        }

        /// Makes four stages, of which the one at `at` ends like this; taking back the stage at `bad` ends like that.
        fn connect(
            &self,
            at: usize,
            how: Ends,
            bad: usize,
            badly: Ends,
        ) -> Result<Staged<Vec<&'static str>>, &'static str> {
            let reporter = Reporter::new(self.told.clone(), PeerId::from_bits(0), Generation(1));
            let flag = Arc::new(AtomicBool::new(false));
            let cx = ConnectContext::new(PeerName::new("p").unwrap(), Instant::now(), flag, reporter);
            let mut stages = Stages::new(&cx);
            let mut made = Vec::new();
            for (stage, name) in NAMES.into_iter().enumerate() {
                made.push(stages.add(name, || {
                    end(if stage == at { how } else { Well }, (), "no more")?;
                    self.steps.lock().unwrap().push(format!("+{name}"));
                    let steps = self.steps.clone();
                    let take_back = move || {
                        steps.lock().unwrap().push(format!("-{name}"));
                        end(if stage == bad { badly } else { Well }, (), "it hangs on")
                    };
                    Ok((name, take_back))
                })?);
            }
            Ok(stages.finish(made))
        }

        fn steps(&self) -> Vec<String> {
            std::mem::take(&mut self.steps.lock().unwrap())
        }

        fn told(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.told.0.lock().unwrap())
        }
    }

    fn there_and_back(many: usize) -> Vec<String> {
        let there = NAMES[..many].iter().map(|name| format!("+{name}"));
        there.chain(NAMES[..many].iter().rev().map(|name| format!("-{name}"))).collect()
    }

    /// What a leak of the stage that is taken back badly is called.
    fn leak(stage: usize, badly: Ends) -> Option<&'static str> {
        match badly {
            Well => None,
            InError => Some("it hangs on"),
            InPanic => Some(NAMES[stage]),
        }
    }

    /// fails if: a stage is not taken back, out of order, or twice; one that fails keeps those before it from being taken back.
    #[test]
    fn a_stage_that_fails_or_panics_takes_those_before_it_back_in_reverse() {
        for at in 0..NAMES.len() {
            for how in [InError, InPanic] {
                for (bad, badly) in (0..NAMES.len()).flat_map(|bad| [Well, InError, InPanic].map(|badly| (bad, badly)))
                {
                    let seen = Seen::new();
                    let connected = catch_unwind(AssertUnwindSafe(|| seen.connect(at, how, bad, badly)));
                    match (how, connected) {
                        (InError, Ok(Err("no more"))) | (InPanic, Err(_)) => {}
                        (_, other) => panic!("stage {at} ends {how:?}: {other:?}"),
                    }
                    assert_eq!(seen.steps(), there_and_back(at), "stage {at} ends {how:?}");
                    let leaked = leak(bad, badly).filter(|_| bad < at);
                    assert_eq!(seen.told(), leaked.into_iter().collect::<Vec<_>>(), "{at} {how:?} {bad} {badly:?}");
                }
            }
        }
    }

    /// fails if: a close leaves a stage, or hides a leak; a drop does not close.
    #[test]
    fn a_close_takes_all_back_in_reverse_and_says_what_leaked() {
        for (bad, badly) in (0..NAMES.len()).flat_map(|bad| [Well, InError, InPanic].map(|badly| (bad, badly))) {
            let seen = Seen::new();
            let connection = seen.connect(usize::MAX, Well, bad, badly).unwrap();
            assert_eq!((*connection).as_slice(), NAMES);
            match (leak(bad, badly), connection.take_back()) {
                (None, Closed::Released) => {}
                (Some(expected), Closed::Leaked(why)) => assert_eq!(why, expected),
                (_, other) => panic!("{bad} {badly:?}: {other:?}"),
            }
            assert_eq!(seen.steps(), there_and_back(NAMES.len()));
            drop(seen.connect(usize::MAX, Well, bad, badly));
            assert_eq!(seen.steps(), there_and_back(NAMES.len()), "a drop is a close");
            assert_eq!(seen.told(), [""; 0]);
        }
    }
}
