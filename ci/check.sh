#!/usr/bin/env bash
# Format, lints and documentation, with every warning an error.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --check
cargo clippy --all-targets -- -D warnings
cargo clippy --no-default-features --all-targets -- -D warnings
# All but `ucx`, which needs libucp: ci/ucx.sh. NIXL is looked for at run time alone.
cargo clippy --features serde,tracing,metrics,nixl --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features serde,tracing,metrics,nixl
