#!/usr/bin/env bash
# What the checks need beyond a stable Rust toolchain, once: a nightly toolchain (sanitizers, fuzzing), cargo-fuzz,
# cargo-mutants, valgrind, which counts instructions, and Chromium, which shows the status page. What is there already stays
# as it is.
#   ci/install.sh            all of it
#   ci/install.sh chromium   that alone
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

if [ "${1:-}" = chromium ]; then
    debian chromium chromium-browser google-chrome
    exit
fi
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
debian valgrind
debian chromium chromium-browser google-chrome
