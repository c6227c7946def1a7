//! A status page of a live table: `/` for people, `/peers` for programs, `/metrics` for Prometheus, `/events` as they happen.
//!
//! ```text
//! cargo run --example status --features serde,metrics      # prints where the page is
//! ```
//!
//! | file | idea |
//! |---|---|
//! | `routes` | **the part to take along**: a router over any `PeerTable`, beside whatever else your server answers |
//! | `page.html`, `page.css`, `page.js` | the page: no build step, nothing from elsewhere |
//! | `cluster` | what there is to see here: peers that are well, restart, lose their connection, or are away |
//!
//! There is no login, and whoever reaches the address reads the table: names, addresses, errors; no secrets and no pages.

mod cluster;
mod routes;

use cluster::Cluster;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;

const HELP: &str = "\
Serves the status of a table of peers, some of which have trouble: / (a page), /peers (JSON), /metrics (Prometheus),
/events (server-sent events). SIGINT and SIGTERM end it.

usage: status [--listen ADDRESS]

  --listen ADDRESS    where to listen; with port 0 the system chooses        [default 127.0.0.1:0]

exit status: 0 it was told to end; 1 it could not serve; 2 it was not understood.
";

/// Seconds. Around a connect over a fast network, a restarted process, and the default `connect_timeout`. Buckets, unlike
/// quantiles, can be summed over processes.
const CONNECT_BUCKETS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let listen = match words[..] {
        ["--help" | "-h"] => {
            return match write!(std::io::stdout(), "{HELP}") {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(1, &format!("the help can't be written: {error}")),
            };
        }
        [] => Ok(SocketAddr::from(([127, 0, 0, 1], 0))),
        ["--listen", address] => address.parse().map_err(|error| format!("{address:?}: {error}")),
        _ => Err(format!("not understood: {}; see --help", words.join(" "))),
    };
    let result = match listen {
        Ok(address) => run(address).map_err(|error| (1, with_causes(&*error))),
        Err(error) => Err((2, error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, error)) => failed(status, &error),
    }
}

fn failed(status: u8, error: &str) -> ExitCode {
    complain(error);
    ExitCode::from(status)
}

/// If this can't be written, the exit status still says it.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "status: {text}");
}

/// An error alone says what did not work; why is in its sources.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// As `#[tokio::main]` would, which panics if there is no runtime to be had.
fn run(listen: SocketAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| format!("there is no runtime: {error}"))?.block_on(serve(listen))
}

async fn serve(listen: SocketAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
    // Before the first table, so that no attempt to connect goes uncounted.
    let metrics = recorder()?;
    let listener = TcpListener::bind(listen).await.map_err(|error| format!("can't listen at {listen}: {error}"))?;
    let address = listener.local_addr()?;
    let cluster = Cluster::start()?;
    let routes = routes::router(cluster.table().clone(), metrics.clone());

    let told_to_end = told_to_end()?;
    writeln!(std::io::stdout(), "http://{address}/")?;
    tokio::select! {
        served = axum::serve(listener, routes) => served?,
        // A page that is open would keep a graceful end waiting for ever: its events have no end.
        () = told_to_end => {}
        () = upkeep(&metrics) => {}
    }
    tokio::task::spawn_blocking(move || cluster.end()).await?;
    Ok(())
}

/// The recorder of this process, with the table's metrics described. It hears every table of the process: here the prefills'
/// own connects count in `peerage_connects_total` too.
fn recorder() -> Result<PrometheusHandle, Box<dyn Error + Send + Sync>> {
    let connects = Matcher::Full("peerage_connect_duration_seconds".into());
    let handle = PrometheusBuilder::new().set_buckets_for_metric(connects, &CONNECT_BUCKETS)?.install_recorder()?;
    peerage::metrics::describe();
    Ok(handle)
}

/// What the exporter's own listener would do: without it, samples pile up while nobody scrapes.
async fn upkeep(metrics: &PrometheusHandle) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        metrics.run_upkeep();
    }
}

/// From the call on, not only once it is awaited.
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(windows)]
    {
        let mut interrupt = tokio::signal::windows::ctrl_c()?;
        Ok(async move {
            interrupt.recv().await;
        })
    }
}
