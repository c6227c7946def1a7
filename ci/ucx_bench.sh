#!/usr/bin/env bash
# The `Ucx` transport against ucx_perftest, and its head of line, then their sections of BENCHMARKS.md. About 12 minutes; on a
# machine that does something else meanwhile the numbers mean little.
#   ci/ucx_bench.sh            measures and writes
#   ci/ucx_bench.sh --quick    a quarter of the pairs, and writes nothing
# Exit status 1 if what is wanted is not reached; BENCHMARKS.md is written all the same, and shows it. Needs libucx-dev and
# ucx-utils, and installs what is not here where there is apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=${1:-}
case $quick in '' | --quick) ;; *)
    echo 'there is only --quick' >&2
    exit 2
    ;;
esac
. ci/ucx.lib.sh
need_ucx
need_commands ucx_perftest ucx-utils
out=$PWD/target/ucx-benchmarks
rm -rf "$out"
mkdir -p "$out"
missed=0
cargo bench --features ucx --bench ucx --no-run
cargo bench --quiet --features ucx --bench ucx -- --check $quick --json "$out/ucx.jsonl" || missed=1
[ -n "$quick" ] || python3 benches/report.py "$out"
exit "$missed"
