#!/usr/bin/env bash
# Instructions of the hot path per operation, counted by callgrind: the same number run after run, whatever the machine does.
#   ci/callgrind.sh            fails if an operation takes more than its bound in ci/callgrind.bounds
#   ci/callgrind.sh --json F   the same, and leaves a line for each number in F
# Needs valgrind (apt-get install valgrind).
set -euo pipefail
cd "$(dirname "$0")/.."
bounds=ci/callgrind.bounds
json=/dev/null
if [ "${1:-}" = --json ]; then
    json=$2
    : >"$json"
fi
command -v valgrind >/dev/null || {
    echo 'valgrind is not installed' >&2
    exit 1
}

program=$(cargo bench --bench hotpath --no-run --message-format=json |
    sed -n 's/.*"name":"hotpath".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$program" ]

out=$(mktemp)
trap 'rm -f "$out"' EXIT
broken=0
printf '%-10s %12s %8s\n' operation instructions bound
while read -r operation bound; do
    case $operation in '' | '#'*) continue ;; esac
    times=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="*count_$operation*" \
        "$program" "$operation" 2>"$out") || { cat "$out" >&2; exit 1; }
    counted=$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$out")
    each=$((counted / times))
    if [ "$each" -eq 0 ]; then
        echo "$operation: nothing was counted" >&2
        exit 1
    fi
    verdict=
    if [ "$each" -gt "$bound" ]; then
        verdict=BROKEN broken=1
    fi
    printf '%-10s %12s %8s %s\n' "$operation" "$each" "$bound" "$verdict"
    printf '{"bench":"callgrind","case":"%s","value":%s,"unit":"instructions","bound":%s}\n' \
        "${operation//_/ }" "$each" "$bound" >>"$json"
done <"$bounds"
exit "$broken"
