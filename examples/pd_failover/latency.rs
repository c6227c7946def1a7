//! How long notifications took, in two columns: while nothing else happened, and while a connect to another peer ran.

use std::fmt::Write;
use std::time::Duration;

/// Buckets grow by 1/32 of their value, so a percentile is right within 3 %.
const STEPS: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Quiet,
    Reconnecting,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    pub(crate) quiet: Histogram,
    pub(crate) reconnecting: Histogram,
}

impl Latencies {
    pub(crate) fn column(&mut self, column: Column) -> &mut Histogram {
        match column {
            Column::Quiet => &mut self.quiet,
            Column::Reconnecting => &mut self.reconnecting,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    n: u64,
    /// Those that took longer than the caller's bound.
    slow: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, took: Duration, slow: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.count(bucket(nanoseconds), 1);
        self.slow += u64::from(took > slow);
    }

    fn count(&mut self, bucket: usize, n: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += n;
        self.n += n;
    }

    pub(crate) fn n(&self) -> u64 {
        self.n
    }

    pub(crate) fn slow_share(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.slow as f64 / self.n as f64 }
    }

    /// In microseconds; `part` is 0.5 for the median.
    pub(crate) fn percentile(&self, part: f64) -> f64 {
        let rank = (self.n as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return lowest(bucket) as f64 / 1000.0;
            }
        }
        0.0
    }

    pub(crate) fn add_all(&mut self, more: &Histogram) {
        for (bucket, n) in more.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            self.count(bucket, *n);
        }
        self.slow += more.slow;
    }

    /// One word for the line a child prints: the slow ones, then `bucket:count` for each bucket that is not empty.
    pub(crate) fn encode(&self) -> String {
        let mut text = self.slow.to_string();
        for (bucket, n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let _ = write!(text, ",{bucket}:{n}");
        }
        text
    }

    /// What [`encode`](Self::encode) made.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        let mut histogram = Histogram { slow: words.next()?.parse().ok()?, ..Histogram::default() };
        for word in words {
            let (at, n) = word.split_once(':')?;
            let at = at.parse().ok().filter(|at| *at <= bucket(u64::MAX))?;
            histogram.count(at, n.parse().ok()?);
        }
        Some(histogram)
    }
}

fn bucket(value: u64) -> usize {
    let octave = u64::from(value.max(STEPS).ilog2() - STEPS.ilog2());
    (octave * STEPS + (value >> octave)) as usize
}

fn lowest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS { bucket } else { (bucket % STEPS + STEPS) << (bucket / STEPS - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_values_within_a_thirtysecond() {
        for value in (0..2_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX]) {
            let low = lowest(bucket(value));
            assert!(low <= value && value - low <= value / STEPS, "{value} in a bucket from {low}");
        }
        assert!((1..5_000).all(|value| bucket(value) - bucket(value - 1) <= 1), "no bucket is left out");
    }

    #[test]
    fn percentiles_and_slow_ones_survive_the_line_between_processes() {
        let mut sent = Histogram::default();
        for microseconds in 1..=1_000 {
            sent.add(Duration::from_micros(microseconds), Duration::from_micros(900));
        }
        let received = Histogram::decode(&sent.encode()).unwrap();
        assert_eq!(received, sent);
        let mut twice = received.clone();
        twice.add_all(&sent);
        assert_eq!((twice.n(), twice.slow_share(), twice.percentile(0.5)), (2_000, 0.1, received.percentile(0.5)));
        assert_eq!(received.n(), 1_000);
        assert_eq!(received.slow_share(), 0.1);
        for (part, is) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (0.0, 1.0)] {
            let found = received.percentile(part);
            assert!((is * 0.96..=is).contains(&found), "{part}: {found}, not {is}");
        }
    }

    #[test]
    fn a_garbled_line_is_refused() {
        for text in ["", "x", "1,2", "1,a:b", "0,99999999999:1"] {
            assert_eq!(Histogram::decode(text), None, "{text}");
        }
    }
}
