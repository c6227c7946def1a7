#!/usr/bin/env bash
# Runs every fuzz target for so many seconds: ci/fuzz.sh SECONDS [TARGET...]
# New inputs go to fuzz/target/corpus, the seeds of fuzz/corpus stay as they are; what fails is kept in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { echo "usage: ci/fuzz.sh SECONDS [TARGET...], targets: ${all[*]}" >&2; exit 2; }
all=(frame handshake address trace table)
case ${1:-} in '' | *[!0-9]*) usage ;; esac
seconds=$1
shift
for target; do
  [[ " ${all[*]} " = *" $target "* ]] || usage
done
if ! cargo +nightly --version >/dev/null 2>&1 || ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  echo "fuzzing needs a nightly toolchain and cargo-fuzz:  ci/install.sh" >&2
  exit 2
fi
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")
cargo +nightly fuzz build
total=0
failed=()
for target in "${targets[@]}"; do
  found=fuzz/target/corpus/$target
  log=fuzz/target/$target.log
  mkdir -p "$found"
  # No single allocation above 16 MiB: a length is checked before it is believed. Threads of the table end on their own,
  # so leaks are looked for in the sanitizers' runs.
  options=(-max_total_time="$seconds" -malloc_limit_mb=16 -timeout=120 -print_final_stats=1 -verbosity=1)
  case $target in
    table) options+=(-max_len=601 -len_control=0 -detect_leaks=0) ;;
    trace) options+=(-max_len=20000) ;;
    frame) options+=(-max_len=4096) ;;
    *) options+=(-max_len=1024) ;;
  esac
  status=ok
  cargo +nightly fuzz run "$target" "$found" "fuzz/corpus/$target" -- "${options[@]}" >"$log" 2>&1 || status=FAILED
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  covered=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -1)
  printf '%-10s %-6s %12s executions, %s edges, %s s\n' "$target" "$status" "${runs:-?}" "${covered:-?}" "$seconds"
  total=$((total + ${runs:-0}))
  if [ "$status" != ok ]; then
    failed+=("$target")
    grep -a -A60 'panicked at\|ERROR: ' "$log" | head -80 || tail -60 "$log"
  fi
done
echo "$total executions"
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
