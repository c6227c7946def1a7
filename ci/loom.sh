#!/usr/bin/env bash
# The loom models against the real code.
#   ci/loom.sh                      runs every model
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
    if [ "$(models -- --list "$@" | grep -c ': test$')" -eq 0 ]; then
        echo "no model has a name like that: $*" >&2
        exit 2
    fi
    models -- --test-threads 2 "$@"
    exit
fi
shift

work=$root/target/mutants/work
out=$root/target/mutants/out
export CARGO_TARGET_DIR=$root/target/mutants/target
rm -rf "$work"
mkdir -p "$work"
# -m: new times, or cargo would take a mutant that an interrupted run has built for the source.
tar -cf - --exclude=./target --exclude=./.git . | tar -xmf - -C "$work"

# Puts the text $2 in place of the text $1 in file $3; both are whole lines.
replace() {
    local text before after
    text=$'\n'$(cat "$3" && printf x)
    before=${text%%"$1"*}
    after=${text#*"$1"}
    if [ "$before" = "$text" ]; then
        echo "$3: the lines to replace are not there:$1" >&2
        return 1
    fi
    if [ "${after#*"$1"}" != "$after" ]; then
        echo "$3: the lines to replace are there twice:$1" >&2
        return 1
    fi
    text=$before$2$after
    text=${text#$'\n'}
    printf %s "${text%x}" >"$3"
}

# Applies mutant file $1 to the copy; sets `model` and `touched`.
apply() {
    local line file='' old=$'\n' new=$'\n'
    model='' touched=()
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        'model: '*) model=${line#model: } ;;
        'file: '*)
            file=${line#file: }
            touched+=("$file")
            ;;
        -*) old+=${line#-}$'\n' ;;
        +*) new+=${line#+}$'\n' ;;
        '')
            if [ "$old" != $'\n' ]; then
                replace "$old" "$new" "$work/$file" || return 1
            fi
            old=$'\n' new=$'\n'
            ;;
        '#'*) ;;
        *)
            echo "$1: not understood: $line" >&2
            return 1
            ;;
        esac
    done < <(cat "$1" && echo && echo)
    [ -n "$model" ] && [ ${#touched[@]} -gt 0 ]
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

if [ $# -eq 0 ]; then
    complete
    set -- "$root"/loom-tests/mutants/*.mutant
else
    set -- "${@/#/$root/loom-tests/mutants/}"
    set -- "${@/%/.mutant}"
fi

caught=0 bad=0
started=$SECONDS
printf '%-44s %-10s %4s  %s\n' mutant verdict s 'what the model said'
for mutant; do
    name=$(basename "$mutant" .mutant)
    before=$SECONDS
    model='' said=''
    if ! apply "$mutant"; then
        verdict='no match'
    elif ! (cd "$work" && models --no-run) >"$out" 2>&1; then
        verdict='no build'
    else
        status=0
        (cd "$work" && timeout "$patience" cargo test --profile loom --no-default-features --test loom -- --exact "$model") \
            >"$out" 2>&1 || status=$?
        case $status in
        0) verdict=SURVIVED ;;
        101)
            said=$(sed -n '/panicked at/{n;p;q;}' "$out")
            case $said in
            '') verdict='no panic' ;;
            *'maximum number of branches'*) verdict='no end' ;;
            *) verdict=caught ;;
            esac
            ;;
        124) verdict='no end' ;;
        *) verdict="status $status" ;;
        esac
    fi
    for file in "${touched[@]}"; do
        cp "$root/$file" "$work/$file"
    done
    printf '%-44s %-10s %4d  %s\n' "$name" "$verdict" $((SECONDS - before)) "$said"
    if [ "$verdict" = caught ]; then
        caught=$((caught + 1))
    else
        bad=$((bad + 1))
        tail -n 15 "$out" >&2 || true
    fi
done
echo "$((caught + bad)) mutants, $caught caught, $((SECONDS - started)) s"
[ "$bad" -eq 0 ]
