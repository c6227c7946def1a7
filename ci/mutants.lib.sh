# Mutants as files, applied one by one to a copy of the tree. Sourced by ci/loom.sh and ci/cases.sh.
#
# A mutant file has a `# why` line, a `model: TEST` line that names the test which must fail, and changes: a `file: PATH` line,
# the whole lines to take out with a `-` before each, those to put in with a `+`, and an empty line.
#
# Before `try_mutants`, set:
#   root, work           the tree, and the copy that `copy_tree` has made of it
#   out                  a file for what cargo says
#   patience             seconds that one test may take
#   build TEST           a function: compiles the copy for that test
#   run TEST             a function: runs that test alone, and ends with cargo's status

copy_tree() {
    rm -rf "$work"
    mkdir -p "$work"
    # -m: new times, or cargo would take a mutant that an interrupted run has built for the source.
    tar -cf - --exclude=./target --exclude=./fuzz/target --exclude=./.git . | tar -xmf - -C "$work"
}

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

# The test that mutant file $1 names.
model_of() {
    sed -n 's/^model: //p' "$1"
}

# Applies each of the mutant files $@ in turn and prints a table; fails unless the test of each fails. A mutant that does not
# apply any more, does not compile, or makes its test run out of time is an error, not a pass.
try_mutants() {
    local mutant name before status verdict said file model touched caught=0 bad=0 started=$SECONDS
    printf '%-44s %-10s %4s  %s\n' mutant verdict s 'what the test said'
    for mutant; do
        name=$(basename "$mutant" .mutant)
        before=$SECONDS
        model='' said='' touched=()
        : >"$out"
        if ! apply "$mutant"; then
            verdict='no match'
        elif ! (cd "$work" && build "$model") >"$out" 2>&1; then
            verdict='no build'
        else
            status=0
            (cd "$work" && run "$model") >"$out" 2>&1 || status=$?
            case $status in
            0) verdict=SURVIVED ;;
            101)
                said=$(sed -n '/panicked at/{n;p;q;}' "$out")
                case $said in
                '') verdict='no panic' ;;
                *'maximum number of branches'*) verdict='no end' ;; # loom's own limit, not the model's rule
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
            tail -n 15 "$out" >&2
        fi
    done
    echo "$((caught + bad)) mutants, $caught caught, $((SECONDS - started)) s"
    [ "$bad" -eq 0 ]
}
