#!/usr/bin/env bash
# Starts a real control plane with simulated nodes, and prints its paths as NAME=VALUE lines.
# usage: up.sh [--prometheus] [--fair] [--version MINOR] NAME
# --version takes kube-apiserver, kube-controller-manager, kube-scheduler and kubectl of another minor version of
# Kubernetes, such as 1.30 (../compatibility). --fair enables API priority and fairness, which is off by default because it slows tests down.
# If a cluster with that name is running, it is not changed, and the same lines are printed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { echo "up.sh: $*" >&2; exit 1; }

prometheus='' fair='' version=''
if [ "${1:-}" = --prometheus ]; then prometheus=1; shift; fi
if [ "${1:-}" = --fair ]; then fair=1; shift; fi
if [ "${1:-}" = --version ]; then version=${2:-}; shift 2; fi
[ $# = 1 ] || die "usage: up.sh [--prometheus] [--fair] [--version MINOR] NAME"
name=$1

bin=$("$here/build.sh")
kubernetes=$bin
[ -z "$version" ] || kubernetes=$("$here/../compatibility/build.sh" "$version")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
state=$cache/clusters/$name
export KWOK_WORKDIR=$cache
export KUBECONFIG=$state/kubeconfig
kubectl=$kubernetes/kubectl

# A port on which no process listens. start.lock prevents two processes from choosing the same one.
free_port() {
  local port
  for port in $(seq "$1" $(($1 + 200))); do
    if ! (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; then echo "$port"; return; fi
  done
  die "no free port from $1 on"
}

create() {
  local options=()
  if [ -n "$prometheus" ]; then
    options+=(--prometheus-binary "$("$here/prometheus.sh")" --prometheus-port "$(free_port 19090)")
  fi
  if [ -z "$fair" ]; then options+=(--disable-qps-limits); fi
  cat "$here"/kwok/*.yaml >"$cache/$name.yaml"
  if [ -n "$version" ]; then
    # Nodes of another version have kubelets of that version.
    sed -i "s/kubeletVersion: .*/kubeletVersion: $("$kubernetes/kube-apiserver" --version | cut -d ' ' -f 2)/" "$cache/$name.yaml"
  fi
  "$bin/kwokctl" create cluster --runtime binary --name "$name" --config "$cache/$name.yaml" \
    --kubeconfig "$KUBECONFIG" --kube-audit-policy "$here/audit-policy.yaml" \
    --etcd-binary "$bin/etcd" --kube-apiserver-binary "$kubernetes/kube-apiserver" \
    --kube-controller-manager-binary "$kubernetes/kube-controller-manager" \
    --kube-scheduler-binary "$kubernetes/kube-scheduler" --kwok-controller-binary "$bin/kwok" \
    "${options[@]}" --wait 180s >"$cache/$name.log" 2>&1 \
    || { cat "$cache/$name.log" >&2; die "the control plane did not start; the lines above show why"; }
  rm -f "$cache/$name.yaml" "$cache/$name.log"
}

# Waits until a command succeeds.
eventually() {
  local until=$((SECONDS + 300))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || die "still failing after 300 s: $*"
    sleep 0.1
  done
}

answers() { "$kubectl" get --raw /readyz >/dev/null 2>&1; }
no_taints() { [ -z "$("$kubectl" get nodes -o jsonpath='{.items[*].spec.taints}')" ]; }

if answers; then
  [ "$(cat "$state/version" 2>/dev/null)" = "$version" ] || die "$name runs another version of Kubernetes: stop it with down.sh $name"
else
  (
    flock 9
    if ! answers; then
      "$here/down.sh" "$name" # after a crash or a reboot
      create 9>&-
      echo "$version" >"$state/version"
    fi
  ) 9>"$cache/start.lock"
  eventually "$kubectl" apply -f "$here/nodes.yaml"
  # Pods are refused until the default service account exists, shortly after the start.
  eventually "$kubectl" get serviceaccount default
  # Pods are scheduled on a node once the control plane has removed its not-ready taint.
  eventually no_taints
fi

echo "KUBECONFIG=$KUBECONFIG"
echo "KUBECTL=$kubectl"
echo "HELM=$bin/helm"
echo "AUDIT_LOG=$state/logs/audit.log"
echo "LOGS=$state/logs"
port=$(sed -n 's/^ *prometheusPort: //p' "$state/kwok.yaml")
[ -z "$port" ] || echo "PROMETHEUS=http://127.0.0.1:$port"
