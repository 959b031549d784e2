#!/usr/bin/env bash
# Writes go.mod and go.sum for Kubernetes' newest patch of a minor version, or for the given one, into a folder named
# after the minor version. All modules have the versions of Kubernetes' own go.mod.
# usage: module.sh 1.30 | module.sh 1.30.14
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
[[ ${1:-} =~ ^1\.[0-9]+(\.[0-9]+)?$ ]] || { echo "usage: module.sh 1.MINOR[.PATCH]" >&2; exit 1; }

export GOFLAGS=-mod=mod GOWORK=off
read -r version theirs <<<"$(go list -m -f '{{.Version}} {{.GoMod}}' "k8s.io/kubernetes@v$1")"
version=${version#v}
mkdir -p "${version%.*}"
cd "${version%.*}"
{
  echo "module gamekeeper/e2e/compatibility"
  echo
  grep '^go ' ../../cluster/go.mod
  echo
  echo "// k8s.io/kubernetes takes its own parts from its tree; outside of it they are these releases."
  echo "replace ("
  sed -nE "s#^(replace)?[[:space:]]+((k8s\.io/[^ ]+) => )\./staging/.*#\t\2\3 v0.${version#1.}#p" "$theirs"
  echo ")"
} >go.mod
rm -f go.sum
programs=(kube-apiserver kube-controller-manager kube-scheduler kubectl)
programs=("${programs[@]/#/k8s.io/kubernetes/cmd/}")
go get -tool "${programs[@]/%/@v$version}"
