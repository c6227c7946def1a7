#!/usr/bin/env bash
# What the checks need beyond a stable Rust toolchain, once: a nightly toolchain (sanitizers, fuzzing), cargo-fuzz,
# cargo-mutants, and valgrind, which counts instructions. What is there already stays as it is.
set -euo pipefail

if cargo +nightly --version >/dev/null 2>&1; then
    echo "nightly toolchain: $(rustc +nightly --version)"
else
    rustup toolchain install nightly --profile minimal
fi
for tool in cargo-fuzz cargo-mutants; do
    if command -v "$tool" >/dev/null; then
        cargo "${tool#cargo-}" --version
    else
        cargo install --locked "$tool"
    fi
done
if command -v valgrind >/dev/null; then
    echo "valgrind: $(valgrind --version)"
elif command -v apt-get >/dev/null; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update
    "${as_root[@]}" apt-get install -y --no-install-recommends valgrind
else
    echo "valgrind is not here, and neither is apt-get: install it with the system's own package manager" >&2
    exit 1
fi
