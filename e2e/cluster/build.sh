#!/usr/bin/env bash
# Builds the tools in go.mod, once per machine, and prints their directory. They are cached outside the checkout,
# under a hash of everything that affects the build, so that a fresh checkout finds them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

die() { echo "build.sh: $*" >&2; exit 1; }
command -v go >/dev/null || die "Go is missing: install Go $(sed -n 's/^go //p' go.mod) or newer (https://go.dev/dl)"
command -v flock >/dev/null || die "flock is missing: install the package util-linux"

export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes v\([^ ]*\).*/\1/p' go.mod)
IFS=. read -r major minor _ <<<"$kubernetes"
component=k8s.io/component-base/version
ldflags="-s -w -X $component.gitVersion=v$kubernetes -X $component.gitMajor=$major -X $component.gitMinor=$minor"
ldflags+=" -X k8s.io/client-go/pkg/version.gitVersion=v$kubernetes"
flags=(-trimpath -buildvcs=false -ldflags "$ldflags")

key=$({ cat go.mod go.sum; echo "${flags[*]}"; go version; go env GOOS GOARCH; } | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
bin=$cache/cluster-$key

if [ ! -d "$bin" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/build.lock"
  flock 9
fi
if [ ! -d "$bin" ]; then
  echo "Building the control plane (once on this machine, about 6 minutes on 2 cores) ..." >&2
  made=$(mktemp -d "$cache/building-XXXXXX")
  trap 'rm -rf "$made"' EXIT
  go build "${flags[@]}" -o "$made/" tool >&2 || die "the control plane did not build; the messages above say why"
  mv "$made/server" "$made/etcd"
  chmod 755 "$made"
  mv -T "$made" "$bin"
fi
echo "$bin"
