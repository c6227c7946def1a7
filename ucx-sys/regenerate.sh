#!/usr/bin/env bash
# Makes src/bindings.rs anew from the installed headers of UCX. Needs libclang (`apt-get install -y libclang-dev`, or LIBCLANG_PATH).
set -euo pipefail
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cargo build --features bindgen --target-dir "$out"
cp "$(find "$out" -path '*peerage-ucx-sys-*/out/bindings.rs' | head -1)" src/bindings.rs
rustfmt --edition 2024 src/bindings.rs
