//! A table's settings, by keyword: those of the library's builder, times in seconds.

use crate::error;
use crate::transport::Callables;
use crate::wait::duration;
use peerage::{Backoff, Breaker, Builder};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

const KNOWN: [&str; 17] = [
    "connect_timeout",
    "close_timeout",
    "drain_deadline",
    "max_concurrent_connects",
    "max_connects_per_second",
    "max_concurrent_closes",
    "max_stuck",
    "max_peers",
    "max_waiters_per_peer",
    "backoff_base",
    "backoff_cap",
    "backoff_min_stable",
    "breaker_after",
    "breaker_open_for",
    "breaker_max_open_percent",
    "remove_failed_after",
    "idle_ttl",
];

pub(crate) fn apply(
    mut builder: Builder<Callables>,
    policy: Option<&Bound<'_, PyDict>>,
) -> PyResult<Builder<Callables>> {
    let Some(policy) = policy else { return Ok(builder) };
    let mut backoff = Backoff::default();
    let mut breaker = Some(Breaker::default());
    for (key, value) in policy.iter() {
        let key: String = key.extract()?;
        builder = match key.as_str() {
            "connect_timeout" => builder.connect_timeout(time(&key, &value)?),
            "close_timeout" => builder.close_timeout(time(&key, &value)?),
            "drain_deadline" => builder.drain_deadline(time(&key, &value)?),
            "max_concurrent_connects" => builder.max_concurrent_connects(number(&key, &value)?),
            "max_connects_per_second" => builder.max_connects_per_second(number(&key, &value)?),
            "max_concurrent_closes" => builder.max_concurrent_closes(number(&key, &value)?),
            "max_stuck" => builder.max_stuck(number(&key, &value)?),
            "max_peers" => builder.max_peers(number(&key, &value)?),
            "max_waiters_per_peer" => builder.max_waiters_per_peer(number(&key, &value)?),
            "remove_failed_after" => builder.remove_failed_after(time_or_never(&key, &value)?),
            "idle_ttl" => builder.idle_ttl(time_or_never(&key, &value)?),
            _ => {
                match (key.as_str(), &mut breaker) {
                    ("backoff_base", _) => backoff.base = time(&key, &value)?,
                    ("backoff_cap", _) => backoff.cap = time(&key, &value)?,
                    ("backoff_min_stable", _) => backoff.min_stable = time(&key, &value)?,
                    ("breaker_after", breaker) if value.is_none() => *breaker = None,
                    ("breaker_after", Some(breaker)) => breaker.after = number(&key, &value)?,
                    ("breaker_open_for", Some(breaker)) => breaker.open_for = time(&key, &value)?,
                    ("breaker_max_open_percent", Some(breaker)) => breaker.max_open_percent = number(&key, &value)?,
                    (known, None) if KNOWN.contains(&known) => {}
                    _ => {
                        let known = KNOWN.join(", ");
                        return Err(PyTypeError::new_err(format!("PeerTable has no setting {key:?}; it has {known}")));
                    }
                }
                builder
            }
        };
    }
    Ok(builder.backoff(backoff).breaker(breaker))
}

fn time(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    match value.extract::<f64>() {
        Ok(seconds) if seconds >= 0.0 => Ok(duration(seconds)),
        _ => Err(invalid(key, "a number of seconds, not below 0", value)),
    }
}

fn time_or_never(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if value.is_none() { Ok(None) } else { time(key, value).map(Some) }
}

fn number<'py, N>(key: &str, value: &Bound<'py, PyAny>) -> PyResult<N>
where
    N: for<'a> FromPyObject<'a, 'py>,
{
    value.extract().map_err(|_| invalid(key, "a number in its range, not below 0", value))
}

fn invalid(key: &str, what: &str, value: &Bound<'_, PyAny>) -> PyErr {
    error::new(value.py(), "InvalidArgument", format_args!("{key} must be {what}, not {value}"))
}
