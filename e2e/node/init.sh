#!/usr/bin/env bash
# Process 1 of the node. Its mount namespace has a root directory of its own: the machine's, overlaid with a tmpfs,
# so that nothing that the kubelet, containers or scripts write reaches the machine.
# usage: init.sh CONFIGURATION PROGRAMS KUBECONFIG REGISTRY FOLDER
set -euo pipefail
configuration=$1 programs=$2 kubeconfig=$3 registry=$4 folder=$5

make_root() {
  mount -t tmpfs -o mode=755 node "$folder/root"
  cd "$folder/root"
  mkdir upper work root data data/{containerd,kubelet}
  mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
  local data=$PWD/data
  cd root
  mkdir -p etc/node/{cni,certs.d/registry.test} opt/node/{bin,logs} var/lib/{containerd,kubelet,cni} var/log old
  cp "$configuration"/{containerd.toml,kubelet.yaml} etc/node/
  cp "$configuration/cni.conflist" etc/node/cni/
  cp "$kubeconfig" etc/node/kubeconfig
  printf 'server = "%s"\n[host."%s"]\n  capabilities = ["pull", "resolve"]\n' "$registry" "$registry" \
    >etc/node/certs.d/registry.test/hosts.toml
  # The snapshots of images are overlays. They cannot be stored on an overlay, so containerd keeps them on the tmpfs.
  mount --bind "$data/containerd" var/lib/containerd
  mount --bind "$data/kubelet" var/lib/kubelet
  mount --bind "$programs" opt/node/bin
  mount --bind "$folder" opt/node/logs
  mount -t tmpfs tmpfs var/lib/cni
  mount -t tmpfs tmpfs var/log
  mount -t tmpfs tmpfs run
  mount -t tmpfs -o mode=1777 tmpfs tmp
  mount --rbind /dev dev
  mount --rbind /sys sys
  mount -t proc proc proc
}

# Shows the kubelet the kernel settings that it wants, so that it does not change those of the machine.
shield_kernel() {
  local setting value
  mkdir run/sysctl
  while read -r setting value; do
    echo "$value" >"run/sysctl/${setting//\//.}"
    mount --bind "run/sysctl/${setting//\//.}" "proc/sys/$setting"
  done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
}

enter_root() {
  pivot_root . old
  cd /
  umount --lazy /old
  rmdir /old
  mount --make-rshared /
}

# Runs the kubelet, and starts it again whenever it ends, as systemd would.
run_kubelet() {
  while :; do
    kubelet --kubeconfig /etc/node/kubeconfig --config /etc/node/kubelet.yaml --root-dir /var/lib/kubelet \
      --hostname-override real-0 --node-ip 10.213.77.1 --node-labels gamekeeper/kubelet=real >>/opt/node/logs/kubelet.log 2>&1 \
      || sleep 0.2
  done
}

make_root
shield_kernel
enter_root
export PATH=/opt/node/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
containerd --config /etc/node/containerd.toml >/opt/node/logs/containerd.log 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
run_kubelet &
wait -n
