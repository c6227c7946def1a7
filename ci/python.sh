#!/usr/bin/env bash
# Builds the wheel of bindings/python, installs it into a fresh environment and runs its tests:
#   ci/python.sh [PYTEST ARGUMENT...]     with `python3`, or the interpreter that PYTHON names
set -euo pipefail
cd "$(dirname "$0")/.."
venv=target/python
export CARGO_TARGET_DIR=$PWD/$venv-build CARGO_BUILD_JOBS=${CARGO_BUILD_JOBS:-2}
(cd bindings/python && cargo fmt --check && cargo clippy --locked -- -D warnings)
"${PYTHON:-python3}" -m venv --clear "$venv"
"$venv/bin/pip" install --quiet './bindings/python[test]'
# The real NIXL, for its tests. `nixl` would bring torch and two CUDA variants; none of them is needed on CPU memory.
# PEERAGE_TEST_NIXL_RUNS=10 PEERAGE_TEST_NIXL_SECONDS=60 makes them ten runs of a minute.
"$venv/bin/pip" install --quiet numpy && "$venv/bin/pip" install --quiet --no-deps nixl-cu13==1.5.1 ||
  echo 'SKIPPED: all over the real NIXL, which pip does not get' >&2
PEERAGE_EXIT_RUNS=${PEERAGE_EXIT_RUNS:-50} "$venv/bin/pytest" bindings/python/tests "$@"
"$venv/bin/python" bindings/python/benches/lease.py
