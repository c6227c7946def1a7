#!/usr/bin/env bash
# The loom models against the real code.
#   ci/loom.sh                      lints what only models compile, runs every model
#   ci/loom.sh NAME...              runs the models whose names have it
#   ci/loom.sh --mutants            applies each of loom-tests/mutants in turn; the model it names must fail
#   ci/loom.sh --mutants NAME...    the same for these only
# A mutant that no longer applies, does not compile, or makes its model run out of time is an error, not a pass.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

export RUSTFLAGS="--cfg peerage_loom --cfg crossbeam_loom"
export LOOM_MAX_BRANCHES=${LOOM_MAX_BRANCHES:-20000}
# The small stack of a modelled thread has no room to print a backtrace: the model that fails would overflow it and never end.
export RUST_BACKTRACE=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/loom}
export CARGO_PROFILE_LOOM_DEBUG=0 CARGO_PROFILE_LOOM_INCREMENTAL=true
patience=${MUTANT_PATIENCE:-240}

models() {
    cargo test --profile loom --no-default-features --test loom "$@"
}

if [ "${1:-}" != --mutants ]; then
    # Here and not in check.sh, whose builds are without the models' cfg and would share nothing with this one.
    [ $# -gt 0 ] || cargo clippy --profile loom --no-default-features --test loom -- -D warnings
    listed=$(models -- --list "$@")
    grep -q ': test$' <<<"$listed" || {
        echo "no model has a name like that: $*" >&2
        exit 2
    }
    models -- --test-threads 2 "$@"
    exit
fi
shift

. ci/mutants.lib.sh
# Two copies of the tree, each with half of the mutants: a model runs on one core, and so does most of what is built for it.
jobs=2
folder=$root/target/mutants

# This shell works in copy $1 from here on.
use_copy() {
    work=$folder/work$1
    out=$folder/out$1
    export CARGO_TARGET_DIR=$folder/target$1
}

build() {
    models --no-run
}

run() {
    timeout "$patience" cargo test --profile loom --no-default-features --test loom -- --exact "$1"
}

# Every `jobs`th of the mutants $2..., from number $1 on.
share() {
    local first=$1 at=0 mutant
    shift
    for mutant; do
        [ $((at++ % jobs)) -ne "$first" ] || printf '%s\n' "$mutant"
    done
}

# A model that no mutant has failed proves nothing, and a mutant that is not in the table is not found.
complete() {
    local named name listed status=0
    listed=$(cd "$work" && models -- --list 2>/dev/null | sed -n 's/: test$//p')
    [ -n "$listed" ] || { echo 'the models do not build' >&2; return 1; }
    named=$(cat "$root"/loom-tests/mutants/*.mutant | sed -n 's/^model: //p')
    while IFS= read -r name; do
        grep -qxF "$name" <<<"$named" || { echo "no mutant must fail the model $name" >&2; status=1; }
    done <<<"$listed"
    for name in "$root"/loom-tests/mutants/*.mutant; do
        name=$(basename "$name" .mutant)
        grep -qF "\`$name\`" "$root/loom-tests/README.md" || { echo "README.md does not list the mutant $name" >&2; status=1; }
    done
    return $status
}

use_copy 0
copy_tree
if [ $# -eq 0 ]; then
    complete
    set -- "$root"/loom-tests/mutants/*.mutant
else
    set -- "${@/#/$root/loom-tests/mutants/}"
    set -- "${@/%/.mutant}"
fi
[ $# -ge "$jobs" ] || jobs=1

(cd "$work" && build) # what does not change, for all copies
pids=()
for ((job = jobs - 1; job >= 0; job--)); do
    if [ "$job" -gt 0 ]; then
        rm -rf "$folder/target$job"
        cp -a "$folder/target0" "$folder/target$job"
    fi
    (
        use_copy "$job"
        [ "$job" -eq 0 ] || copy_tree
        mapfile -t mine < <(share "$job" "$@")
        try_mutants "${mine[@]}"
    ) &
    pids+=($!)
done
bad=0
for pid in "${pids[@]}"; do
    wait "$pid" || bad=1
done
exit "$bad"
