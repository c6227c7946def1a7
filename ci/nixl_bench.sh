#!/usr/bin/env bash
# The `Nixl` transport beside NIXL's bare C API, then its section of BENCHMARKS.md. About 3 minutes; on a machine that does
# something else meanwhile the numbers mean little.
#   ci/nixl_bench.sh            measures and writes
#   ci/nixl_bench.sh --quick    a quarter of the pairs, and writes nothing
# Exit status 1 if what is wanted is not reached; BENCHMARKS.md is written all the same, and shows it.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=${1:-}
case $quick in '' | --quick) ;; *)
  echo 'there is only --quick' >&2
  exit 2
  ;;
esac
. ci/nixl.lib.sh
need_nixl
out=$PWD/target/nixl-benchmarks
rm -rf "$out"
mkdir -p "$out"
missed=0
cargo bench --features nixl --bench nixl --no-run
cargo bench --quiet --features nixl --bench nixl -- --check $quick --json "$out/nixl.jsonl" || missed=1
[ -n "$quick" ] || python3 benches/report.py "$out"
exit "$missed"
