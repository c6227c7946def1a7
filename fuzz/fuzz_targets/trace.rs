//! The reader of request traces: any file is read to its end or to an error that names a line, and requests come in order
//! of time, each with as many blocks as it may have.

#![no_main]

#[allow(dead_code)]
#[path = "../../examples/pd_failover/random.rs"]
mod random;
#[allow(dead_code)]
#[path = "../../examples/pd_failover/trace.rs"]
mod trace;

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;
use trace::Requests;

/// One file per process, written anew for each input.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("peerage-fuzz-trace-{}", std::process::id())));

fuzz_target!(|input: &[u8]| {
    std::fs::write(&*FILE, input).expect("the directory for temporary files is writable");
    let Ok(mut requests) = Requests::open(Some(&FILE), 1) else { return };
    let mut last = Duration::ZERO;
    for _ in 0..input.split(|byte| *byte == b'\n').count() + 2 {
        match requests.next() {
            Ok(request) => {
                assert!(request.at >= last, "time falls from {last:?} to {:?}", request.at);
                assert!((1..=256).contains(&request.blocks.len()));
                last = request.at;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
});
