#!/usr/bin/env bash
# make demo: a real control plane, the operator, and the walkthroughs of the documentation with kubectl.
# Everything stays up afterwards; stop.sh (make demo-down) removes it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
started=$SECONDS

"$here/stop.sh"
echo "Building the operator ..."
cargo build --quiet --package gamekeeper --package kubectl-game --package e2e --bins
echo "Starting a control plane ..."
lines=$(e2e/cluster/up.sh demo)
export KUBECONFIG=
eval "$lines"
export KUBECONFIG PATH="${KUBECTL%/*}:$PATH"
state=$(dirname "$KUBECONFIG")

. "$here/show.sh"
say "Install the kinds and the operator's permissions"
# The operator runs outside the cluster, with its service account, instead of as a Deployment.
show helm install gamekeeper charts/gamekeeper --namespace gamekeeper-system --create-namespace \
  --set replicas=0
wait_for "the kinds are served" true kubectl get gamedeployments,hooktemplates,hookruns

say "Run the operator, and the web server that hooks call"
token=$(kubectl -n gamekeeper-system create token gamekeeper --duration=24h)
operator_config=$state/operator.kubeconfig
cp "$KUBECONFIG" "$operator_config"
kubectl --kubeconfig "$operator_config" config set-credentials gamekeeper --token "$token" >/dev/null
kubectl --kubeconfig "$operator_config" config set-context --current \
  --user gamekeeper --namespace gamekeeper-system >/dev/null
listen=127.0.0.1:$(free_port 18080)
# Pods of this cluster have loopback addresses.
background operator env KUBECONFIG="$operator_config" \
  target/debug/gamekeeper run --listen "$listen" --hook-allow-loopback
background hook-server target/debug/hook-server 9091
wait_answer operator "http://$listen/readyz"
wait_answer hook-server http://127.0.0.1:9091
show curl --silent http://127.0.0.1:9091
echo

. "$here/canary.sh"
. "$here/hooks.sh"

cat <<END

All walkthroughs have run, in $((SECONDS - started)) s. The cluster and the operator are up; continue with

  export KUBECONFIG=$KUBECONFIG PATH=${KUBECTL%/*}:$PWD/target/debug:\$PATH
  kubectl apply -f examples/first-hour
  kubectl game tree arena -w
  tail -f $state/operator.log
  curl http://$listen/metrics

and remove everything with make demo-down.
END
