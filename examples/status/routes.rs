//! A table over HTTP. Takes no lock of the table's but, for a peer's history, that peer's own for one copy, and when a reader
//! of `/events` comes each peer's in turn; answers also while connects and closes hang. All paths in the page are relative, so the router can be nested: `Router::nest("/table", …)`
//! is seen at `/table/`.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_core::Stream;
use metrics_exporter_prometheus::PrometheusHandle;
use peerage::{Events, PeerTable, Transport};
use serde_json::Value;
use std::pin::Pin;
use std::task::{Context, Poll};

/// `/metrics`, `/peers`, `/events` and the page. `metrics` belongs to the recorder that is installed.
pub(crate) fn router<T: Transport>(table: PeerTable<T>, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/", get(|| async { file("text/html", include_str!("page.html")) }))
        .route("/page.css", get(|| async { file("text/css", include_str!("page.css")) }))
        .route("/page.js", get(|| async { file("text/javascript", include_str!("page.js")) }))
        .route("/peers", get(peers::<T>))
        .route("/events", get(events::<T>))
        .route("/metrics", get(move |State(table): State<PeerTable<T>>| async move { scrape(&table, &metrics) }))
        .with_state(table)
}

/// Names and errors are other people's words. The page shows them as text; if it ever failed to, nothing in them would run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(kind: &str, text: &'static str) -> Response {
    let kind = format!("{kind}; charset=utf-8");
    let headers = [
        (CONTENT_TYPE, &*kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}

/// The counters at transitions are there already; the rest is what the table is at this moment.
fn scrape<T: Transport>(table: &PeerTable<T>, metrics: &PrometheusHandle) -> Response {
    peerage::metrics::record(table);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render()).into_response()
}

/// The snapshot, and in each peer also its `history`, oldest first.
async fn peers<T: Transport>(State(table): State<PeerTable<T>>) -> Response {
    match snapshot(&table) {
        Ok(json) => {
            let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
            (headers, json.to_string()).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn snapshot<T: Transport>(table: &PeerTable<T>) -> serde_json::Result<Value> {
    let snapshot = table.snapshot();
    let mut json = serde_json::to_value(&snapshot)?;
    for (at, peer) in snapshot.peers.iter().enumerate() {
        // One that went since has none.
        let history = table.peer_by_id(peer.id).map(|peer| peer.history()).unwrap_or_default();
        json["peers"][at]["history"] = serde_json::to_value(history)?;
    }
    Ok(json)
}

/// Each transition as it happens, as JSON with one key: `current`, `changed`, or `missed` with how many a slow reader was
/// not told of. Nobody waits for the reader.
async fn events<T: Transport>(State(table): State<PeerTable<T>>) -> Result<impl IntoResponse, StatusCode> {
    // Subscribing takes locks, which is not for a thread that serves others.
    let events = tokio::task::spawn_blocking(move || table.events()).await;
    let events = events.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(Sse::new(Told(events)).keep_alive(KeepAlive::default()))
}

/// Ends when the table does.
struct Told(Events);

impl Stream for Told {
    type Item = serde_json::Result<sse::Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = |event| serde_json::to_string(&event).map(|json| sse::Event::default().data(json));
        self.0.poll_next(cx).map(|event| event.map(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peerage::transport::memory::{Fabric, MemoryAddress};
    use std::time::Instant;

    /// More transitions than a subscription keeps, before the first byte is taken.
    #[tokio::test]
    async fn a_slow_reader_of_events_is_told_how_many_it_missed() {
        let fabric = Fabric::new();
        let table = PeerTable::builder(fabric.node("here")).build().unwrap();
        let _peer = table.insert("p", MemoryAddress::new("p")).unwrap();
        let body = events(State(table.clone())).await.into_response().into_body();
        let many = 1_000;
        for _ in 0..many {
            let peer = table.insert("q", MemoryAddress::new("q")).unwrap();
            peer.remove(Instant::now()).wait().unwrap();
        }
        drop((_peer, table));
        let text = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let events: Vec<Value> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|json| serde_json::from_str(json).unwrap())
            .collect();
        assert_eq!(events[0]["current"]["name"], "p");
        let missed = events[1]["missed"].as_u64().unwrap();
        let told = events[2..].iter().filter(|event| event["changed"].is_object()).count() as u64;
        assert_eq!(told, events.len() as u64 - 2, "{:?}", events[2]);
        assert!(missed > 0 && missed + told >= 2 * many, "{missed} missed, {told} told");
    }
}
