#!/usr/bin/env bash
# Installs what checks the page of `kubectl game view` (page/package-lock.json), once per machine, and prints the directory
# of its modules. Without npm it prints nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/page"

command -v npm >/dev/null || exit 0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
tools=$cache/page-$({ cat package-lock.json; uname -sm; } | sha256sum | cut -c1-12)

if [ ! -d "$tools" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/page.lock"
  flock 9
fi
if [ ! -d "$tools" ]; then
  made=$(mktemp -d "$cache/installing-XXXXXX")
  trap 'rm -rf "$made"' EXIT
  cp package.json package-lock.json "$made"
  (cd "$made" && npm ci --ignore-scripts --no-audit --no-fund) >&2
  mv -T "$made" "$tools"
  trap - EXIT
fi
echo "$tools/node_modules"
