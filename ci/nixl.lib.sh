# Sourced by what needs NIXL: its Python package in target/nixl, a virtual environment, and where its library is.

nixl_version=1.5.1

# Ends the script, loudly and without failing.
skip() {
  echo "SKIPPED: $*" >&2
  exit 0
}

nixl_library() {
  find "$PWD/target/nixl" -path '*/.nixl_cu13.mesonpy.libs/libnixl_capi.so' -print -quit 2>/dev/null
}

# Installs it if it is not there, and exports what a process needs. Skips where there is none.
need_nixl() {
  local venv=$PWD/target/nixl
  case $(uname -sm) in 'Linux x86_64' | 'Linux aarch64') ;; *) skip "there is no NIXL for $(uname -sm)" ;; esac
  if [ ! -e "$venv/$nixl_version" ] || [ -z "$(nixl_library)" ]; then
    command -v python3 >/dev/null || skip 'there is no python3 to install NIXL with'
    rm -rf "$venv"
    python3 -m venv "$venv" || skip 'python3 makes no virtual environment; on Debian, install python3-venv'
    # Its dependencies are for Python alone, which nothing here runs it with.
    "$venv/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check "nixl-cu13==$nixl_version"
    touch "$venv/$nixl_version"
  fi
  PEERAGE_NIXL_LIB=$(nixl_library)
  [ -n "$PEERAGE_NIXL_LIB" ] || {
    echo "the package nixl-cu13 $nixl_version has no libnixl_capi.so" >&2
    exit 1
  }
  # Beside Debian's libucx, NIXL's own UCX crashes the process at its end, in libnl, if it looks at InfiniBand.
  export PEERAGE_NIXL_LIB UCX_MODULES=${UCX_MODULES-^ib}
  echo "NIXL $nixl_version: $PEERAGE_NIXL_LIB"
}
