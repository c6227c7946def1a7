#!/usr/bin/env bash
# The Python bindings: lints, the wheel built and installed into a fresh environment, its tests, over the real NIXL too.
#   ci/python.sh            some minutes
#   ci/python.sh --tests    with fewer rounds, and without the price of a lease: what CI has time for
#   ci/python.sh --proof    also ten runs of a minute of LightLLM's transporter
# With `python3`, or the interpreter that PYTHON names. Works in target/python; skips, and says so, where there is no Python.
set -euo pipefail
cd "$(dirname "$0")/.."
asked=${1:-}
case $asked in '' | --tests | --proof) ;; *)
  echo 'usage: ci/python.sh [--tests | --proof]' >&2
  exit 2
  ;;
esac
. ci/nixl.lib.sh
python=${PYTHON:-python3}
venv=target/python
export CARGO_TARGET_DIR=$PWD/$venv-build CARGO_BUILD_JOBS=${CARGO_BUILD_JOBS:-2}
command -v "$python" >/dev/null || skip "there is no $python to build the bindings for"
(cd bindings/python && cargo fmt --check && cargo clippy --locked -- -D warnings)
"$python" -m venv --clear "$venv" || skip "$python makes no virtual environment; on Debian, install python3-venv"
pip() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip './bindings/python[test]'
# `nixl` alone would bring torch and two variants of CUDA; none of them is needed on CPU memory.
pip numpy && pip --no-deps "nixl-cu13==$nixl_version" || echo 'SKIPPED: all over the real NIXL, which pip does not get' >&2
export UCX_MODULES=${UCX_MODULES-^ib}
case $asked in
--tests) export PEERAGE_EXIT_RUNS=5 ;;
--proof) export PEERAGE_EXIT_RUNS=50 PEERAGE_TEST_NIXL_RUNS=10 PEERAGE_TEST_NIXL_SECONDS=60 ;;
*) export PEERAGE_EXIT_RUNS=50 ;;
esac
"$venv/bin/python" -m pytest -q bindings/python/tests
[ "$asked" = --tests ] || "$venv/bin/python" bindings/python/benches/lease.py
