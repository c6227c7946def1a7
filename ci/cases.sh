#!/usr/bin/env bash
# The cases of tests/CASES.md and the tests that show them.
#   ci/cases.sh                       prints case → test → file → what fails it; an error if anything is missing
#   ci/cases.sh --mutants             applies ten of tests/cases/mutants in turn, other ten each day; the test of each must fail
#   ci/cases.sh --mutants DAY         the ten of that day
#   ci/cases.sh --mutants all|NAME... all of them, or these
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export LC_ALL=C RUST_BACKTRACE=0
mutants=$root/tests/cases/mutants
most_declared=10

# The test target that file $1 is a part of.
target() {
    local file=${1#tests/}
    file=${file%%/*}
    echo "${file%.rs}"
}

# Lines of `name <tab> file <tab> fails if`, one for each function whose name begins with case_.
case_tests() {
    git ls-files --cached --others --exclude-standard 'tests/*.rs' | xargs awk '
        FNR == 1 { doc = "" }
        /^ *\/\/\// { sub(/^ *\/\/\/ ?/, ""); doc = doc " " $0; next }
        /^ *#\[/ { next }
        match($0, /fn case_[a-z0-9_]+/) {
            fails = doc
            if (!sub(/^.*fails if: /, "", fails)) fails = ""
            printf "%s\t%s\t%s\n", substr($0, RSTART + 3, RLENGTH - 3), FILENAME, fails
        }
        { doc = "" }'
}

# The ids in the name of test $1, one a line.
ids() {
    local word name=${1#case_}_
    while word=${name%%_*} && [[ $word =~ ^[a-z][0-9]+$ ]]; do
        echo "$word"
        name=${name#*_}
    done
}

# The mutants that $1, what fails a test, names, one a line.
named_mutants() {
    sed -E 's/\([^()]*\)//g; s/,/\n/g' <<<"$1" | sed -E 's/[[:space:]]+//g; /^$/d'
}

mapping() {
    local status=0 name file fails id mutant row tests listed declared=0 all_named=''
    missing() {
        echo "$*" >&2
        status=1
    }
    tests=$(case_tests)
    listed=$(cut -f2 <<<"$tests" | sort -u | while read -r file; do target "$file"; done | sort -u | while read -r name; do
        cargo test --quiet --test "$name" -- --list | sed -n "s/: test\$//p" | sed "s/^/$name::/"
    done)

    while IFS=$'\t' read -r name file fails; do
        grep -qE "^$(target "$file")::(.*::)?$name\$" <<<"$listed" || missing "$file: $name is not run as a test"
        [ -n "$(ids "$name")" ] || missing "$file: $name has no id"
        [ -n "$fails" ] || missing "$file: $name does not say what fails it"
        for mutant in $(named_mutants "$fails"); do
            [ -f "$mutants/$mutant.mutant" ] || missing "$file: $name fails if $mutant, and there is no such mutant"
            all_named+=$mutant$'\n'
        done
    done <<<"$tests"
    for file in "$mutants"/*.mutant; do
        mutant=$(basename "$file" .mutant)
        grep -qxF "$mutant" <<<"$all_named" || missing "no test says that it fails if $mutant"
        grep -qxF "$(model_of "$file")" <<<"$listed" || missing "$mutant.mutant: there is no test $(model_of "$file")"
    done

    printf '%-4s %-116s %-28s %s\n' case test file 'fails if'
    while IFS='|' read -r _ id row _; do
        id=${id// /}
        row=${row# }
        if [[ $row == 'does not apply:'* ]]; then
            printf '%-4s %s\n' "$id" "$row"
            declared=$((declared + 1))
            continue
        fi
        file=$(while IFS=$'\t' read -r name file fails; do
            ids "$name" | grep -qx "${id,,}" && printf '%-4s %-116s %-28s %s\n' "$id" "$name" "$file" "$fails"
        done <<<"$tests" || true)
        if [ -n "$file" ]; then
            echo "$file"
        else
            printf '%-4s %s\n' "$id" 'OPEN'
            missing "$id has neither a test nor a line that says why it does not apply"
        fi
    done < <(grep -E '^\| [A-Z][0-9]+ \|' tests/CASES.md)
    while IFS=$'\t' read -r name file fails; do
        for id in $(ids "$name"); do
            grep -qE "^\| ${id^^} \|" tests/CASES.md || missing "$file: $name has the id ${id^^}, which tests/CASES.md does not list"
        done
    done <<<"$tests"
    [ "$declared" -le "$most_declared" ] || missing "$declared cases are declared not to apply, more than $most_declared"
    return $status
}

. ci/mutants.lib.sh
case ${1:-} in
'')
    mapping
    exit
    ;;
--mutants) shift ;;
*)
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
    ;;
esac

all=("$mutants"/*.mutant)
case ${1:-$(($(date +%s) / 86400))} in
all) chosen=("${all[@]}") ;;
*[!0-9]*) chosen=("${@/#/$mutants/}") && chosen=("${chosen[@]/%/.mutant}") ;;
*)
    day=${1:-$(($(date +%s) / 86400))}
    for ((at = 0; at < 10 && at < ${#all[@]}; at++)); do
        chosen+=("${all[(day * 10 + at) % ${#all[@]}]}")
    done
    echo "the ten of day $day; again by: ci/cases.sh --mutants $day"
    ;;
esac
for mutant in "${chosen[@]}"; do
    [ -f "$mutant" ] || { echo "$mutant: no such mutant" >&2; exit 2; }
done

# What the tests depend on is built once, for the tree and for its copy; the copy has a version of its own, or cargo would take
# what was built for the one for the other.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
work=$root/target/case-mutants/work
out=$root/target/case-mutants/out
patience=${MUTANT_PATIENCE:-120}
copy_tree
sed -i '0,/^version = "[^"]*/s//&-mutant/' "$work/Cargo.toml"
# What a mutant has broken never happens, so there is no need to wait for it as long as on a machine that is merely busy.
sed -i 's/from_secs(30)/from_secs(8)/' "$work"/tests/{spec/common/mod,tcp/support}.rs "$work"/src/transport/memory/{steps,fabric}.rs

build() {
    cargo test --test "${1%%::*}" --no-run
}

run() {
    timeout "$patience" cargo test --test "${1%%::*}" -- --exact "${1#*::}"
}

# Without a mutant they pass, also with so little patience.
models=$(for mutant in "${chosen[@]}"; do model_of "$mutant"; done | sort -u)
for name in $(sed 's/::.*//' <<<"$models" | sort -u); do
    mapfile -t tests < <(sed -n "s/^$name:://p" <<<"$models")
    if ! (cd "$work" && cargo test --test "$name" -- --exact "${tests[@]}") >"$out" 2>&1; then
        tail -n 30 "$out" >&2
        echo "a test of $name fails without a mutant" >&2
        exit 1
    fi
done
try_mutants "${chosen[@]}"
