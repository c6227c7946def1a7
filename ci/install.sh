#!/usr/bin/env bash
# What the checks need beyond a stable Rust toolchain, once: a nightly toolchain (sanitizers, fuzzing), cargo-fuzz,
# cargo-mutants, valgrind, which counts instructions, and Chromium, which shows the status page. What is there already stays
# as it is.
#   ci/install.sh            all of it
#   ci/install.sh chromium   that alone
#   ci/install.sh valgrind   that alone
set -euo pipefail

# Debian's package $1, which brings a command of that name; nothing if that or one of the other commands is here.
debian() {
    local name
    for name in "$@"; do
        if command -v "$name" >/dev/null; then
            "$name" --version
            return
        fi
    done
    if command -v apt-get >/dev/null; then
        local as_root=()
        [ "$(id -u)" -eq 0 ] || as_root=(sudo)
        "${as_root[@]}" apt-get update
        "${as_root[@]}" apt-get install -y --no-install-recommends "$1"
    else
        echo "$1 is not here, and neither is apt-get: install it with the system's own package manager" >&2
        exit 1
    fi
}

case ${1:-all} in
all) ;;
chromium)
    debian chromium chromium-browser google-chrome
    exit
    ;;
valgrind)
    debian valgrind
    exit
    ;;
*)
    echo "usage: ci/install.sh [chromium|valgrind]" >&2
    exit 2
    ;;
esac
if cargo +nightly --version >/dev/null 2>&1; then
    echo "nightly toolchain: $(rustc +nightly --version)"
else
    rustup toolchain install nightly --profile minimal
fi
cargo fuzz --version 2>/dev/null || cargo install --locked cargo-fuzz
# Names of its mutants stand in ci/mutants.accepted, and change between its major versions.
cargo mutants --version 2>/dev/null | grep '^cargo-mutants 27\.' || cargo install --locked cargo-mutants --version '^27'
debian valgrind
debian chromium chromium-browser google-chrome
