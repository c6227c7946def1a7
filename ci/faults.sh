#!/usr/bin/env bash
# Walks through every plan of tests/faults with real processes, or kills and restarts a peer of one process again and again:
#   ci/faults.sh [PLAN...]      all plans, or those whose name has one of these words
#   ci/faults.sh --soak [N]     N cycles, 1,000 if it does not say; the survivor must hold no more than before
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --soak ]; then
  cycles=${2:-1000}
  case $cycles in '' | *[!0-9]*) echo "usage: ci/faults.sh [PLAN...] | --soak [N]" >&2; exit 2 ;; esac
  PEERAGE_FAULTS_SOAK=$cycles exec cargo test --test faults soak::soak -- --exact --nocapture
fi
listed=$(cargo test --test faults -- --list "$@")
grep -q ': test$' <<<"$listed" || {
  echo "no plan has a name like that: $*" >&2
  exit 2
}
exec cargo test --test faults -- --show-output "$@"
