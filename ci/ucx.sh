#!/usr/bin/env bash
# The `Ucx` transport over the system's libucp: lints, its own tests, every transport's specification over it, plans of process
# faults, failover.
#   ci/ucx.sh             a few minutes
#   ci/ucx.sh --tests     without the failover runs: what CI has time for
#   ci/ucx.sh --proof     also its own tests with UCX 1.22, 20 runs of 10 s of the crash test with both, 1,000 kills and restarts
# Installs libucx-dev where there is apt-get; skips, and says so, where there is neither.
set -euo pipefail
cd "$(dirname "$0")/.."
asked=${1:-}
case $asked in '' | --tests | --proof) ;; *)
  echo 'usage: ci/ucx.sh [--tests | --proof]' >&2
  exit 2
  ;;
esac
. ci/ucx.lib.sh
need_ucx
echo "UCX $(pkg-config --modversion ucx)"
cargo clippy --features ucx,serde,tracing,metrics --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features ucx --document-private-items
cargo test -p peerage-ucx-sys
cargo test --features ucx --lib ucx
cargo test --features ucx --test ucx
cargo test --features ucx --test spec over_ucx
# Half a minute. Those that are SKIPPED say why.
cargo test --features ucx --test faults over_ucx -- --test-threads 1
[ "$asked" != --tests ] || exit 0
cargo build --features ucx --example pd_failover # which the next one runs
cargo test --features ucx --test pd_failover over_ucx
for tls in '' tcp; do
  [ -z "$tls" ] || export UCX_TLS=$tls
  cargo run --release --features ucx --example pd_failover -- --transport ucx --seed 1
done
unset UCX_TLS
if [ "$asked" = --proof ]; then
  newer=$(newer_ucx) || echo 'SKIPPED: all with UCX 1.22, which pip does not get' >&2
  [ -z "$newer" ] || LD_LIBRARY_PATH=$newer cargo test --features ucx --test ucx
  export PEERAGE_TEST_UCX_RUNS=20 PEERAGE_TEST_UCX_SECONDS=10 PEERAGE_TEST_UCX_KILLS=1000
  cargo test --features ucx --test ucx crash -- --nocapture --test-threads 1
  [ -z "$newer" ] || LD_LIBRARY_PATH=$newer cargo test --features ucx --test ucx crash -- --nocapture --test-threads 1
  cargo test --features ucx --test ucx resources::kills -- --nocapture
fi
