#!/usr/bin/env bash
# Builds the tools of FOLDER/go.mod, once per machine, and prints their directory. They are cached outside the checkout,
# under a hash of everything that affects the build, so that a fresh checkout finds them.
# usage: go-tools.sh FOLDER NAME DURATION [FLAG...]    NAME is the prefix of the directory's name, flags are those of go build
set -euo pipefail
cd "$1"
name=$2 duration=$3
shift 3

die() { echo "$name: $*" >&2; exit 1; }
command -v go >/dev/null || die "Go is missing: install Go $(sed -n 's/^go //p' go.mod) or newer (https://go.dev/dl)"
command -v flock >/dev/null || die "flock is missing: install the package util-linux"

export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes v\([^ ]*\).*/\1/p' go.mod)
IFS=. read -r major minor _ <<<"$kubernetes"
component=k8s.io/component-base/version
ldflags="-s -w -X $component.gitVersion=v$kubernetes -X $component.gitMajor=$major -X $component.gitMinor=$minor"
ldflags+=" -X k8s.io/client-go/pkg/version.gitVersion=v$kubernetes"
flags=(-trimpath -buildvcs=false -ldflags "$ldflags" "$@")

key=$({ cat go.mod go.sum; find . -name '*.go' -exec cat {} +; echo "${flags[*]}"; go version; go env GOOS GOARCH; } | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
bin=$cache/$name-$key

if [ ! -d "$bin" ]; then
  mkdir -p "$cache"
  exec 9>"$bin.lock"
  flock 9
fi
if [ ! -d "$bin" ]; then
  echo "Building the tools of the $name (once on this machine, $duration on 2 cores) ..." >&2
  made=$(mktemp -d "$cache/building-XXXXXX")
  trap 'rm -rf "$made"' EXIT
  go build "${flags[@]}" -o "$made/" tool >&2 || die "the tools did not build; the messages above show why"
  # etcd's package is called server.
  if [ -e "$made/server" ]; then mv "$made/server" "$made/etcd"; fi
  chmod 755 "$made"
  mv -T "$made" "$bin"
fi
echo "$bin"
