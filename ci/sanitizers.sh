#!/usr/bin/env bash
# The tests under the compiler's sanitizers.
#   ci/sanitizers.sh            both parts
#   ci/sanitizers.sh address    use after free, out of bounds, leaks: whole test binaries, and the processes they start
#   ci/sanitizers.sh thread     data races, in what ThreadSanitizer can judge without a standard library built for it
# A finding of any process fails the run, also if the test that met it passed. Needs: rustup toolchain install nightly
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "sanitizers need a nightly toolchain:  rustup toolchain install nightly" >&2
    exit 2
fi
if ! command -v llvm-symbolizer >/dev/null && ! command -v addr2line >/dev/null; then
    echo "sanitizers need llvm-symbolizer or addr2line, which comes with binutils, to name what they find" >&2
    exit 2
fi
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
work=${CARGO_TARGET_DIR:-$root/target}/sanitizers
failed=()

# Runs cargo test with arguments $3... for the part $1, which the report calls $2.
run() {
    local part=$1 what=$2 found log=$work/$1.log status=ok
    shift 2
    local before=$SECONDS
    rm -rf "$work/$part-findings"
    mkdir -p "$work/$part-findings"
    cargo +nightly test --target "$host" "$@" >"$log" 2>&1 || status=FAILED
    found=$(find "$work/$part-findings" -type f | wc -l)
    [ "$found" -eq 0 ] || status=FAILED
    [ "$(passed "$log")" -ne 0 ] || status=FAILED # a name that no test has any more
    printf '%-8s %-44s %-6s %5s tests, %s findings, %s s\n' "$part" "$what" "$status" "$(passed "$log")" "$found" \
        $((SECONDS - before))
    if [ "$status" != ok ]; then
        failed+=("$part: $what")
        find "$work/$part-findings" -type f -exec head -n 60 {} \; | head -n 240
        [ "$found" -ne 0 ] || tail -n 60 "$log"
    fi
}

passed() {
    sed -n 's/^test result: .* \([0-9]*\) passed;.*/\1/p' "$1" | awk '{ sum += $1 } END { print sum + 0 }'
}

address() {
    export CARGO_TARGET_DIR=$work/address
    export RUSTFLAGS="-Zsanitizer=address --cfg peerage_sanitizer"
    export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:allow_addr2line=1:log_path=$work/address-findings/asan"
    # Leaks that are meant: a panic whose payload panics when it is dropped, what belongs to another process, a connection
    # that the native side refuses to close for ever, and a ticket, all forgotten.
    run address 'unit tests' --lib -- --skip what_panics_is_told_in_its_own_words_and_harms_nobody_when_it_is_dropped \
        --skip only_the_process_that_made_it_drops_it
    run address spec --test spec -- --skip a_close_that_is_never_ready_leaks_at_the_drain_deadline \
        --skip a_forgotten_ticket_blocks_its_peer_and_shows
    local test
    for test in model stress churn memory tcp regressions leaks tcp_resources; do
        run address "$test" --test "$test"
    done
    cargo +nightly build --quiet --target "$host" --example pd_failover
    run address 'pd_failover, every process of it' --test pd_failover --test pd_failover_parts
    echo "address: not covered: doc tests; allocations, which counts in an allocator of its own; the models, which are loom's;"
    echo "address: cases, faults, fork, storm, exits, observed, metrics, status; four tests in which something is forgotten on purpose; what processes that are killed have left allocated."
}

thread() {
    export CARGO_TARGET_DIR=$work/thread
    # crossbeam-epoch does without fences, which ThreadSanitizer does not see, when it is told so.
    export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg crossbeam_sanitize_thread --cfg peerage_sanitizer"
    export TSAN_OPTIONS="suppressions=$root/ci/races.supp:print_suppressions=0:allow_addr2line=1:log_path=$work/thread-findings/tsan"
    local modules=(queue note record region latest)
    run thread "unit tests of ${modules[*]}" --lib -- --test-threads 1 "${modules[@]/%/::}"
    echo "thread: covered: the queue to the driver, notes of reports, records with crossbeam-epoch, pages, latest values with arc-swap."
    echo "thread: not covered: what synchronises by a mutex, a condition variable or a channel of the standard library (driver,"
    echo "thread: pools, waiting, grants, transports, tables as a whole), or by a fence (gates, references of slots, a post beside"
    echo "thread: a deregistration): ThreadSanitizer does not see either and reports races that are none."
}

case ${1:-both} in
both)
    address
    thread
    ;;
address | thread) "$1" ;;
*)
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
    ;;
esac
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
