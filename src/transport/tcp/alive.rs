//! Whether the other side is still there, told by what comes from it.
//!
//! Each side sends a ping when it has sent nothing for an interval, and counts the time in which nothing came. Only time in
//! which this process was there to hear counts: one that was stopped, or held back the other side itself because its inbox
//! is full, has learned nothing.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::sleep;

/// When to ping, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keepalive {
    pub(super) interval: Duration,
    pub(super) dead_timeout: Duration,
}

/// What has moved on one connection. Counted and looked at by one task, so nothing here orders anything.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    heard: AtomicU64,
    sent: AtomicU64,
    /// It is we who do not listen.
    deaf: AtomicBool,
    /// What is sent counts as heard.
    sends: AtomicBool,
}

impl Pulse {
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        if self.sends.load(Ordering::Relaxed) {
            self.heard();
        }
    }

    /// Whether it does as a sign of life that the other side takes what is sent.
    pub(super) fn watch_sends(&self, does: bool) {
        self.sends.store(does, Ordering::Relaxed);
    }

    /// Silence does not count until what is given back is dropped.
    pub(super) fn deaf(&self) -> Deaf<'_> {
        self.deaf.store(true, Ordering::Relaxed);
        Deaf(self)
    }

    /// `from`, with every read that brings something noted.
    pub(super) fn listen<R>(&self, from: R) -> Heard<'_, R> {
        Heard { from, pulse: self }
    }

    /// Resolves when nothing has come for `dead_timeout`, or up to two and a half intervals later. Never without a keepalive.
    pub(super) async fn stops(&self, keepalive: Option<Keepalive>, mut ping: impl FnMut()) {
        let Some(Keepalive { interval, dead_timeout }) = keepalive else { return std::future::pending().await };
        let look = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (mut heard, mut sent, mut silence) = (look(&self.heard), look(&self.sent), Duration::ZERO);
        while silence < dead_timeout {
            let beat = jittered(interval);
            sleep(beat).await;
            // One beat, however long it took: the rest is time in which we were not there.
            let last = std::mem::replace(&mut heard, look(&self.heard));
            let was_deaf = self.deaf.load(Ordering::Relaxed);
            silence = if heard != last || was_deaf { Duration::ZERO } else { silence + beat };
            if std::mem::replace(&mut sent, look(&self.sent)) == sent {
                ping();
            }
        }
    }
}

/// Ends when it is dropped.
pub(super) struct Deaf<'a>(&'a Pulse);

impl Drop for Deaf<'_> {
    fn drop(&mut self) {
        // What waits to be read has come meanwhile.
        self.0.heard();
        self.0.deaf.store(false, Ordering::Relaxed);
    }
}

/// Three to five quarters of it, so that connections made together do not ping together.
fn jittered(interval: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    interval * 3 / 4 + (interval / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Something that is read from.
pub(super) struct Heard<'a, R> {
    from: R,
    pulse: &'a Pulse,
}

impl<R: AsyncRead + Unpin> AsyncRead for Heard<'_, R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.from).poll_read(cx, into);
        if into.filled().len() > before {
            self.pulse.heard();
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;
    use tokio::time::{Instant, advance, timeout};

    const SECOND: Duration = Duration::from_secs(1);
    const KEEPALIVE: Option<Keepalive> = Some(Keepalive { interval: SECOND, dead_timeout: Duration::from_secs(5) });

    #[tokio::test(start_paused = true)]
    async fn silence_is_noticed_after_the_dead_timeout_and_two_and_a_half_intervals_at_most() {
        for _ in 0..100 {
            let (pulse, pings, begun) = (Pulse::default(), Cell::new(0), Instant::now());
            pulse.stops(KEEPALIVE, || pings.set(pings.get() + 1)).await;
            let after = begun.elapsed();
            assert!(after >= 5 * SECOND && after <= 5 * SECOND + SECOND * 5 / 2, "{after:?}");
            assert!((4..=7).contains(&pings.get()), "{} pings", pings.get());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_heard_in_time_lives_and_who_sends_need_not_ping() {
        let (pulse, pings) = (Pulse::default(), Cell::new(0));
        let mut stops = pin!(pulse.stops(KEEPALIVE, || pings.set(pings.get() + 1)));
        for _ in 0..100 {
            assert!(timeout(4 * SECOND, &mut stops).await.is_err());
            pulse.heard();
        }
        assert!(pings.get() >= 4 * 100 * 3 / 4, "{} pings", pings.get());
        pings.set(0);
        for _ in 0..1000 {
            pulse.heard();
            pulse.sent();
            assert!(timeout(SECOND / 4, &mut stops).await.is_err());
        }
        assert_eq!(pings.get(), 0);
        assert!(timeout(8 * SECOND, stops).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_this_process_stood_still_or_did_not_listen_does_not_count() {
        let pulse = Pulse::default();
        let mut stops = pin!(pulse.stops(KEEPALIVE, || {}));
        assert!(timeout(SECOND / 4, &mut stops).await.is_err());
        for _ in 0..3 {
            advance(3600 * SECOND).await;
            assert!(timeout(SECOND / 100, &mut stops).await.is_err(), "an hour is one beat");
        }
        let deaf = pulse.deaf();
        assert!(timeout(1000 * SECOND, &mut stops).await.is_err());
        drop(deaf);
        assert!(timeout(4 * SECOND, &mut stops).await.is_err(), "and the silence begins anew after it");
        assert!(timeout(8 * SECOND, &mut stops).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_keepalive_silence_lasts() {
        let pulse = Pulse::default();
        assert!(timeout(100_000 * SECOND, pulse.stops(None, || panic!("a ping"))).await.is_err());
    }
}
