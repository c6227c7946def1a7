# What there is to run.
default:
    @just --list

# Everything that CI runs.
ci:
    .ci/run

# Format, lint, docs.
check:
    ci/check.sh

# The tests a newcomer runs.
test:
    cargo test

# Models of the protocol on the real code; `just loom bays` runs those whose name has it.
loom *filter:
    ci/loom.sh {{filter}}

# Every mutant must be caught by its model.
mutants:
    ci/loom.sh --mutants

# Real processes under faults.
failover *args:
    cargo run --release --example pd_failover -- {{args}}

# Cost of a lease against what one would use instead.
bench:
    cargo bench --bench lease

# Every benchmark; writes BENCHMARKS.md and its plots. About 8 minutes, on a machine that does nothing else.
benchmarks:
    ci/benchmarks.sh

# Instructions of the hot path against their bounds.
callgrind:
    ci/callgrind.sh

# Each fuzz target for so long.
fuzz seconds="30":
    ci/fuzz.sh {{seconds}}
