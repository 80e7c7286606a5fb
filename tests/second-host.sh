#!/usr/bin/env bash
# Runs a coordinator here, and a worker and queensctl on another host (a network namespace). Needs root and
# built programs; removes everything at its end.
#   tests/second-host.sh target/release
set -euo pipefail
programs=$(realpath "${1:-target/release}")
space=queens-show-$$ here=qs$$h there=qs$$t
scratch=$(mktemp -d)
coordinator=
clean() {
  [ -z "$coordinator" ] || kill "$coordinator" 2>/dev/null || true
  ip netns del "$space" 2>/dev/null || true
  ip link del "$here" 2>/dev/null || true
  rm -rf "$scratch" "/etc/netns/$space"
}
trap clean EXIT
cd "$scratch"

ip netns add "$space"
ip link add "$here" type veth peer name "$there"
ip link set "$there" netns "$space"
ip addr add 10.77.0.1/24 dev "$here" && ip link set "$here" up
ip -n "$space" addr add 10.77.0.2/24 dev "$there"
ip -n "$space" link set "$there" up && ip -n "$space" link set lo up
mkdir -p "/etc/netns/$space" && echo "10.77.0.1 queens.lab.example" > "/etc/netns/$space/hosts"
remote() { ip netns exec "$space" "$@"; }
hide() { sed -E 's/(queens1-[A-Za-z0-9_-]{12})[A-Za-z0-9_-]+/\1…/g'; }
say() { printf '\n$ %s\n' "$*"; }

say "coordinator --n 14 --listen 0.0.0.0:7171 --advertise queens.lab.example"
"$programs/coordinator" --n 14 --listen 0.0.0.0:7171 --advertise queens.lab.example --no-http \
  > out 2> err &
coordinator=$!
timeout 60 sh -c 'until grep -q queensctl err; do kill -0 "$0" || exit; sleep 0.1; done' "$coordinator" ||
  { cat err; exit 1; }
hide < err
worker=$(grep -o 'QUEENS_JOIN=[^ ]* worker' err | cut -d' ' -f1)
operator=$(grep -o 'QUEENS_JOIN=[^ ]* queensctl' err | cut -d' ' -f1)

say "[other host] QUEENS_JOIN=queens1-… worker --idle-timeout 1s"
remote env "$worker" "$programs/worker" --threads 1 --idle-timeout 1s --spool spool 2>&1 | hide
say "[other host] QUEENS_JOIN=queens1-… queensctl status"
remote env "$operator" "$programs/queensctl" status
say "[other host] worker --coordinator http://10.77.0.1:7171 --insecure"
remote timeout 3 "$programs/worker" --coordinator http://10.77.0.1:7171 --insecure --threads 1 --spool spool2 2>&1 | hide || true
say "[this host] queensctl token create --role viewer --name screen --expires 1d"
made=$("$programs/queensctl" token create --role viewer --name screen --expires 1d)
hide <<< "$made"
say "[other host] QUEENS_JOIN=queens1-… queensctl runs"
remote env "${made%% *}" "$programs/queensctl" runs
say "[this host] queensctl token revoke screen"
"$programs/queensctl" token revoke screen
say "[other host] QUEENS_JOIN=queens1-… queensctl runs"
remote env "${made%% *}" "$programs/queensctl" runs || true
