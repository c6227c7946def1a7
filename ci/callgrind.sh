#!/usr/bin/env bash
# Instructions of the hot path per operation, and how many of them are locked, counted by callgrind: the same numbers run
# after run, whatever else the machine does.
#   ci/callgrind.sh            fails if an operation takes more than its bounds in ci/callgrind.bounds
#   ci/callgrind.sh --json F   the same, and leaves a line for each number in F
# Needs valgrind (apt-get install valgrind).
set -euo pipefail
cd "$(dirname "$0")/.."
json=/dev/null
if [ "${1:-}" = --json ]; then
    json=$2
    : >"$json"
fi
command -v valgrind >/dev/null || {
    echo 'valgrind is not installed: ci/install.sh valgrind' >&2
    exit 1
}

program=$(cargo bench --bench hotpath --no-run --message-format=json |
    sed -n 's/.*"name":"hotpath".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$program" ] || {
    echo 'the benchmark hotpath was not built' >&2
    exit 1
}

out=$(mktemp)
trap 'rm -f "$out"' EXIT
broken=0
rows=0
# Prints one row; operation, what is counted, count, "at most" or "exactly", bound.
judge() {
    local verdict=BROKEN
    case $4 in
    'at most') [ "$3" -gt "$5" ] || verdict='' ;;
    exactly) [ "$3" -ne "$5" ] || verdict='' ;;
    esac
    [ -z "$verdict" ] || broken=1
    rows=$((rows + 1))
    printf '%-10s %-20s %6s, %s %s %s\n' "$1" "$2" "$3" "$4" "$5" "$verdict"
    printf '{"bench":"callgrind","case":"%s","value":%s,"unit":"%s","bound":%s}\n' "${1//_/ }" "$3" "$2" "$5" >>"$json"
}
while read -r operation instructions locked; do
    case $operation in '' | '#'*) continue ;; esac
    times=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-bus=yes \
        --toggle-collect="*count_$operation*" "$program" "$operation" 2>"$out") || { cat "$out" >&2 && exit 1; }
    read -r counted counted_locked < <(sed -n 's/.*Collected : //p' "$out")
    if [ "$counted" -lt "$times" ]; then
        echo "$operation: nothing was counted" >&2
        exit 1
    fi
    judge "$operation" instructions $((counted / times)) 'at most' $((instructions))
    # Counted too few is no gain: a right that is counted needs them.
    judge "$operation" 'locked instructions' $((${counted_locked:-0} / times)) exactly "${locked:?}"
done <ci/callgrind.bounds
[ "$rows" -gt 0 ] || { echo 'ci/callgrind.bounds has no operation' >&2; exit 1; }
exit "$broken"
