#!/usr/bin/env bash
# Mutants of the files that unit tests alone must pin down: ci/mutants.sh [FILE...]
# cargo-mutants changes one operator, branch or result at a time, in a copy of this tree; a unit test must fail, or not end.
# A survivor fails this run unless ci/mutants.accepted says why no test can see it, and so does an entry there that is not
# a survivor any more. Orderings are not looked at here: for those, ci/loom.sh --mutants.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
root=$PWD
accepted=$root/ci/mutants.accepted
patience=${MUTANT_PATIENCE:-20}

if [[ $(cargo mutants --version 2>/dev/null) != 'cargo-mutants 27.'* ]]; then
    echo "mutants need:  cargo install --locked cargo-mutants --version '^27'" >&2
    exit 2
fi
[ $# -gt 0 ] || set -- src/policy.rs src/state.rs src/transport/frame.rs src/transport/frame/handshake.rs src/transfer.rs src/grant.rs
for file; do
    [ -f "$file" ] || { echo "$file: no such file" >&2; exit 2; }
done

work=$root/target/unit-mutants/work
out=$root/target/unit-mutants/out
log=$root/target/unit-mutants/log
export CARGO_TARGET_DIR=$root/target/unit-mutants/target
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=1 RUST_BACKTRACE=0
rm -rf "$out"
mkdir -p "$out"
. ci/mutants.lib.sh
copy_tree
cd "$work"

if ! cargo test --lib >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "the unit tests fail without a mutant" >&2
    exit 1
fi

row() { printf '%-34s %7s %7s %9s %9s %7s %8s\n' "$@"; }
count() { wc -l <"$out/mutants.out/$1.txt"; }
# Names of mutants without their places, which move with every edit.
names() { sed -E 's/:[0-9]+:[0-9]+: /: /' | sort; }
reasoned() { grep "^$file: " "$accepted" | sort || true; }

all=(0 0 0 0 0 0)
bad=0
row file mutants caught unviable timeouts missed seconds
for file; do
    before=$SECONDS status=0
    cargo mutants --in-place --cargo-arg=--lib --baseline=skip --timeout "$patience" \
        --exclude-re ' tests::' --no-shuffle --colors never --file "$file" --output "$out" >"$log" 2>&1 || status=$?
    case $status in
    0 | 2 | 3) ;; # all caught, some missed, some timed out
    *)
        tail -n 30 "$log" >&2
        exit 1
        ;;
    esac
    numbers=("$(count caught)" "$(count unviable)" "$(count timeout)" "$(count missed)")
    numbers=($((numbers[0] + numbers[1] + numbers[2] + numbers[3])) "${numbers[@]}" $((SECONDS - before)))
    for i in "${!numbers[@]}"; do
        all[i]=$((all[i] + numbers[i]))
    done
    row "$file" "${numbers[@]}"
    if [ "${numbers[0]}" -eq 0 ]; then
        echo "  nothing to mutate"
        bad=1
    fi
    sed 's/^/  no end of /' "$out/mutants.out/timeout.txt"

    missed=$out/mutants.out/missed.txt
    unreasoned=$(comm -23 <(names <"$missed") <(reasoned))
    while read -r mutant; do
        if grep -qxF -- "$(names <<<"$mutant")" <<<"$unreasoned"; then
            echo "  SURVIVED $mutant"
            bad=1
        fi
    done <"$missed"
    while read -r name; do
        echo "  ci/mutants.accepted names what is no survivor: $name"
        bad=1
    done < <(comm -13 <(names <"$missed") <(reasoned))
done
row total "${all[@]}"
[ "$bad" -eq 0 ]
