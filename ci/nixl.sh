#!/usr/bin/env bash
# The `Nixl` transport over NIXL's own package: lints, its own tests, every transport's specification over it, failover.
#   ci/nixl.sh            some minutes, after the download
#   ci/nixl.sh --tests    without the failover runs: what CI has time for
#   ci/nixl.sh --proof    also 20 runs of 15 s of the crash test
# Installs the package into target/nixl, a virtual environment; skips, and says so, where there is no Python to make one.
set -euo pipefail
cd "$(dirname "$0")/.."
asked=${1:-}
case $asked in '' | --tests | --proof) ;; *)
  echo 'usage: ci/nixl.sh [--tests | --proof]' >&2
  exit 2
  ;;
esac
. ci/nixl.lib.sh

# Lints need no NIXL, nor do the tests of where it is looked for.
cargo clippy --features nixl,serde,tracing,metrics --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features nixl --document-private-items

need_nixl
cargo test --features nixl --lib nixl
cargo test --features nixl --test nixl
cargo test --features nixl --test spec over_nixl
[ "$asked" != --tests ] || exit 0
cargo build --features nixl --example pd_failover # which the next one runs
cargo test --features nixl --test pd_failover over_nixl
cargo run --release --features nixl --example pd_failover -- --transport nixl --seed 1
if [ "$asked" = --proof ]; then
  export PEERAGE_TEST_NIXL_RUNS=20 PEERAGE_TEST_NIXL_SECONDS=15
  cargo test --features nixl --test nixl crash -- --nocapture --test-threads 1
fi
