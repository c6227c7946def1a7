#!/usr/bin/env bash
# The `Ucx` transport between hosts, over a network that fails: three network namespaces, which are gone afterwards.
#   ci/ucx_hosts.sh       about 2 minutes
# Takes root. Installs libucx-dev, iproute2 and iptables where there is apt-get; skips, and says so, where something of that
# or namespaces are not to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/ucx.lib.sh
[ "$(id -u)" -eq 0 ] || skip 'network namespaces take root'
need_ucx
need_commands 'ip iptables' iproute2 iptables

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
# No keepalive of libucp's or of TCP's: what the network swallows is to be found by the table.
export UCX_NET_DEVICES=eth0 UCX_KEEPALIVE_INTERVAL=inf UCX_TCP_KEEPIDLE=inf
ip netns exec "$here" cargo test --features ucx --test ucx hosts:: -- --nocapture
