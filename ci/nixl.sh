#!/usr/bin/env bash
# The `Nixl` transport over NIXL's own package: lints, and its tests on the real library.
#   ci/nixl.sh            a minute, after the download
# Installs the package into target/nixl, a virtual environment; skips, and says so, where there is no Python to make one.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 0 ] || {
  echo 'usage: ci/nixl.sh' >&2
  exit 2
}
version=1.5.1
venv=$PWD/target/nixl

# Ends the script, loudly and without failing.
skip() {
  echo "SKIPPED: $*" >&2
  exit 0
}

library() {
  find "$venv" -path '*/.nixl_cu13.mesonpy.libs/libnixl_capi.so' -print -quit 2>/dev/null
}

# Lints need no NIXL, nor do the tests of where it is looked for.
cargo clippy --features nixl,serde,tracing,metrics --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features nixl --document-private-items

[ "$(uname -sm)" = 'Linux x86_64' ] || [ "$(uname -sm)" = 'Linux aarch64' ] || skip "there is no NIXL for $(uname -sm)"
if [ ! -e "$venv/$version" ] || [ -z "$(library)" ]; then
  command -v python3 >/dev/null || skip 'there is no python3 to install NIXL with'
  rm -rf "$venv"
  python3 -m venv "$venv" || skip 'python3 makes no virtual environment; on Debian, install python3-venv'
  # Its dependencies are for Python alone, which nothing here runs it with.
  "$venv/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check "nixl-cu13==$version"
  touch "$venv/$version"
fi
PEERAGE_NIXL_LIB=$(library)
[ -n "$PEERAGE_NIXL_LIB" ] || {
  echo "the package nixl-cu13 $version has no libnixl_capi.so" >&2
  exit 1
}
export PEERAGE_NIXL_LIB
# Beside Debian's libucx, NIXL's own UCX crashes the process at its end, in libnl, if it looks at InfiniBand.
export UCX_MODULES=${UCX_MODULES-^ib}
echo "NIXL $version: $PEERAGE_NIXL_LIB"
cargo test --features nixl --lib nixl
