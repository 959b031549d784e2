#!/usr/bin/env bash
# Stops clusters that up.sh started, and removes their files.
# usage: down.sh NAME...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
bin=$("$here/build.sh")
for name in "$@"; do
  [ -d "$cache/clusters/$name" ] || continue
  # kwokctl kills the process that has a component's process ID, even if the component has ended and the ID is another
  # process's now.
  for file in "$cache/clusters/$name"/pids/*.pid; do
    if [ -e "$file" ] && ! grep -qsF "$cache/clusters/$name/" "/proc/$(<"$file")/cmdline"; then rm "$file"; fi
  done
  KWOK_WORKDIR=$cache "$bin/kwokctl" delete cluster --name "$name" \
    --kubeconfig "$cache/clusters/$name/kubeconfig" >/dev/null 2>&1 \
    || { echo "down.sh: cluster $name could not be stopped" >&2; exit 1; }
  rm -rf "$cache/clusters/$name"
done
