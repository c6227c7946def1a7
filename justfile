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

# Every mutant of the files that unit tests alone must pin down.
unit-mutants *files:
    ci/mutants.sh {{files}}

# Which test shows which case; `just cases --mutants all` applies what must fail them.
cases *args:
    ci/cases.sh {{args}}

# Real processes under faults.
failover *args:
    cargo run --release --example pd_failover -- {{args}}

# Ten thousand peers restart while a thousand callers wait for each, in virtual time.
storm:
    PEERAGE_STORM_PEERS=10000 PEERAGE_STORM_CALLERS=1000 cargo test --release --test storm -- --nocapture --test-threads 1

# A live page of a table, at the address it prints.
status *args:
    cargo run --example status --features serde,metrics -- {{args}}

# What other systems and people see of a table, in a browser too.
seen:
    ci/seen.sh

# Plans of process faults; `just faults mute` walks through those whose name has it, `just faults --soak` kills 1,000 times.
faults *args:
    ci/faults.sh {{args}}

# The `Ucx` transport, its tests and its failover run; `just ucx --proof` runs those of the crash for long.
ucx *args:
    ci/ucx.sh {{args}}

# Three hosts as network namespaces, and a network that fails. Takes root.
ucx-hosts:
    ci/ucx_hosts.sh

# The `Nixl` transport, its tests and its failover run; `just nixl --proof` runs those of the crash for long.
nixl *args:
    ci/nixl.sh {{args}}

# The Python bindings: their wheel, tests, and the price of a lease.
python *args:
    ci/python.sh {{args}}

# The `Ucx` transport against ucx_perftest; writes its sections of BENCHMARKS.md.
ucx-bench *args:
    ci/ucx_bench.sh {{args}}

# The `Nixl` transport against NIXL's bare C API; writes its section of BENCHMARKS.md.
nixl-benchmarks *args:
    ci/nixl_bench.sh {{args}}

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

# Use after free, leaks and data races, by the compiler's sanitizers; `just sanitizers address` for one part.
sanitizers *part:
    ci/sanitizers.sh {{part}}

# Once: what the long checks need beyond a stable Rust toolchain.
tools:
    ci/install.sh

# Everything that takes long: mutants, fuzzing, sanitizers, faults.
nightly:
    ci/loom.sh --mutants
    ci/cases.sh --mutants all
    ci/fuzz.sh 300
    ci/sanitizers.sh
    ci/faults.sh --soak
    ci/mutants.sh
    PEERAGE_MODEL_CASES=5000 cargo test --release --test model
    PEERAGE_CHURN_SECONDS=600 cargo test --release --test churn
