# Where UCX is, for the scripts that need it. Sourced by ci/ucx*.sh.

# Ends the script, loudly and without failing.
skip() {
  echo "SKIPPED: $*" >&2
  exit 0
}

# Installs Debian's packages $2... if one of the commands in $1 is not here.
need_commands() {
  local command
  for command in $1; do
    command -v "$command" >/dev/null || {
      install_packages "${@:2}"
      return
    }
  done
}

# Installs libucx-dev if UCX 1.13 or later is not here.
need_ucx() {
  pkg-config --exists 'ucx >= 1.13' 2>/dev/null || install_packages libucx-dev pkg-config
}

# Fetches UCX 1.22 into target/, and says in which folder its libraries are. Fails where it can't be had.
newer_ucx() {
  local folder=target/ucx-1.22
  [ -e "$folder/libucx/lib/libucp.so.0" ] || {
    python3 -m pip download --quiet --no-deps --dest "$folder" libucx-cu13==1.22.0 >&2 &&
      python3 -m zipfile -e "$folder"/libucx_cu13-1.22.0-*.whl "$folder"
  } || return
  realpath "$folder/libucx/lib"
}

install_packages() {
  command -v apt-get >/dev/null || skip "this needs what Debian has in $*, and there is no apt-get to install it"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update
  "${as_root[@]}" apt-get install -y --no-install-recommends "$@"
}
