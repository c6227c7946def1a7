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
version=1.5.1
venv=$PWD/target/nixl

# Ends the script, loudly and without failing.
skip() {
  echo "SKIPPED: $*" >&2
  exit 0
}

library() {
  find "$venv" -path '*/.nixl_cu13.mesonpy.libs/libnixl_capi.so' -print -quit 2>/dev/null
}

# Lints need no NIXL, nor do the tests of where it is looked for.
cargo clippy --features nixl,serde,tracing,metrics --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features nixl --document-private-items

[ "$(uname -sm)" = 'Linux x86_64' ] || [ "$(uname -sm)" = 'Linux aarch64' ] || skip "there is no NIXL for $(uname -sm)"
if [ ! -e "$venv/$version" ] || [ -z "$(library)" ]; then
  command -v python3 >/dev/null || skip 'there is no python3 to install NIXL with'
  rm -rf "$venv"
  python3 -m venv "$venv" || skip 'python3 makes no virtual environment; on Debian, install python3-venv'
  # Its dependencies are for Python alone, which nothing here runs it with.
  "$venv/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check "nixl-cu13==$version"
  touch "$venv/$version"
fi
PEERAGE_NIXL_LIB=$(library)
[ -n "$PEERAGE_NIXL_LIB" ] || {
  echo "the package nixl-cu13 $version has no libnixl_capi.so" >&2
  exit 1
}
export PEERAGE_NIXL_LIB
# Beside Debian's libucx, NIXL's own UCX crashes the process at its end, in libnl, if it looks at InfiniBand.
export UCX_MODULES=${UCX_MODULES-^ib}
echo "NIXL $version: $PEERAGE_NIXL_LIB"
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
