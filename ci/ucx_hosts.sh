#!/usr/bin/env bash
# The `Ucx` transport between hosts, over a network that fails: three network namespaces, which are gone afterwards.
#   ci/ucx_hosts.sh       about 2 minutes
# Needs root and libucx-dev (ci/ucx.sh installs it); skips, and says so, where there are none or no namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() {
  echo "SKIPPED: $*" >&2
  exit 0
}
pkg-config --exists 'ucx >= 1.13' 2>/dev/null || skip 'no UCX 1.13 or later here (Debian: libucx-dev)'
[ "$(id -u)" -eq 0 ] || skip 'network namespaces take root'
for command in ip iptables; do
  command -v "$command" >/dev/null && continue
  command -v apt-get >/dev/null || skip "no $command here, and no apt-get to install it"
  apt-get update
  apt-get install -y --no-install-recommends iproute2 iptables
done

id=$$
here=peerage-$id-here
clean() {
  local name
  for name in here there well; do
    ip netns del "peerage-$id-$name" 2>/dev/null || true
  done
}
trap clean EXIT
ip netns add "$here" || skip 'network namespaces are not permitted here'
ip -n "$here" link set lo up
ip -n "$here" link add eth0 type bridge || skip 'there are no bridges here'
ip -n "$here" addr add 10.77.0.1/24 dev eth0
ip -n "$here" link set eth0 up
host=1
for name in there well; do
  host=$((host + 1))
  other=peerage-$id-$name
  ip netns add "$other"
  ip -n "$other" link set lo up
  ip -n "$here" link add "$name" type veth peer name eth0 netns "$other"
  ip -n "$here" link set "$name" master eth0
  ip -n "$here" link set "$name" up
  ip -n "$other" addr add "10.77.0.$host/24" dev eth0
  ip -n "$other" link set eth0 up
done
ip netns exec "peerage-$id-there" iptables -L INPUT >/dev/null || skip 'there is no iptables in a namespace here'

cargo test --features ucx --test ucx --no-run
export PEERAGE_TEST_HOSTS="$here=10.77.0.1 peerage-$id-there=10.77.0.2 peerage-$id-well=10.77.0.3"
export UCX_NET_DEVICES=eth0
ip netns exec "$here" cargo test --features ucx --test ucx hosts:: -- --nocapture
