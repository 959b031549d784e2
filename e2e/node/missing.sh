#!/usr/bin/env bash
# Prints what keeps a node with a real kubelet from running on this machine; nothing if it can run.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
stop() { echo "$*"; exit 0; }

[ "$(uname -s)" = Linux ] || stop "the node needs Linux"
[ "$(id -u)" = 0 ] || stop "the node needs root"
message=$("$here/../require.sh" go flock unshare setpriv ip runc /usr/lib/cni/bridge 2>&1) || stop "$message"

unshare --mount --pid --fork --kill-child --propagation private bash -c '
  mount -t tmpfs tmpfs /mnt && mkdir /mnt/{upper,work,root} \
    && mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root \
    && mount -t proc proc /mnt/root/proc' >/dev/null 2>&1 \
  || stop "the node needs namespaces and an overlay of the root directory, which this machine does not permit"

for controller in cpu cpuset memory pids devices freezer; do
  folder=/sys/fs/cgroup/$controller/gamekeeper-probe-$$
  { mkdir "$folder" && rmdir "$folder"; } 2>/dev/null \
    || stop "the node needs cgroup v1 with the controller $controller, writable in /sys/fs/cgroup"
done

{ ip link add gamekeeper1 type bridge && ip link del gamekeeper1; } 2>/dev/null \
  || stop "the node needs to create a network bridge, which this machine does not permit"
