#!/usr/bin/env bash
# Runs the node real-0, with a real kubelet, until standard input ends; then removes everything that it has created.
# Only one node runs on a machine at a time: a second run waits.
# usage: run.sh KUBECONFIG REGISTRY FOLDER    REGISTRY is a URL that images of registry.test/ are pulled from; the
#                                             logs and the node's process ID are written to FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kubeconfig=$1 registry=$2 folder=$3
bridge=gamekeeper0
cgroup=gamekeeper-node
bin=$("$here/build.sh")
exec 3<&0 9>"${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper/node.lock"
# IDs of the background processes.
reader='' node=''

clean() {
  trap '' INT TERM
  # When the first process of a PID namespace is killed, all others are killed, too.
  [ -z "$node" ] || { kill -KILL "$node" && wait "$node"; } 2>/dev/null || true
  [ -z "$reader" ] || kill "$reader" 2>/dev/null || true
  ip link del "$bridge" 2>/dev/null || true
  local until=$((SECONDS + 10))
  until remove_cgroups; do
    [ $SECONDS -lt $until ] || { echo "run.sh: a cgroup $cgroup could not be removed" >&2; break; }
    sleep 0.1
  done
}

# Fails while a cgroup still has processes.
remove_cgroups() {
  local root
  for root in /sys/fs/cgroup/*/"$cgroup"; do
    [ ! -d "$root" ] || find "$root" -depth -type d -exec rmdir {} + 2>/dev/null || return 1
  done
}

# Waits until no other node runs, and removes what a killed node has left behind.
wait_for_turn() {
  flock 9
  clean
  trap 'exit 143' TERM
  trap 'exit 130' INT
  trap clean EXIT
}

make_network() {
  ip link add "$bridge" type bridge
  ip addr add 10.213.77.1/24 dev "$bridge"
  ip link set "$bridge" up
}

make_cgroups() {
  local root
  for root in /sys/fs/cgroup/*/; do
    [ ! -e "$root/cgroup.clone_children" ] || mkdir "$root/$cgroup"
  done
  # A new cpuset has no processors and no memory.
  for file in cpuset.cpus cpuset.mems; do
    cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$cgroup/$file"
  done
}

wait_for_turn
make_network
make_cgroups
mkdir -p "$folder/root"
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --propagation private \
  "$here/init.sh" "$here" "$bin" "$kubeconfig" "$registry" "$folder" </dev/null >"$folder/init.log" 2>&1 9>&- &
node=$!
echo "$node" >"$folder/pid"
cat <&3 >/dev/null 9>&- &
reader=$!
wait -n
kill -0 "$node" 2>/dev/null || { echo "run.sh: the node has ended; its logs are in $folder" >&2; exit 1; }
