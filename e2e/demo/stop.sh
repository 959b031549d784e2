#!/usr/bin/env bash
# make demo-down: stops what start.sh started.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper/clusters/demo

for file in "$state"/*.pid; do
  [ -f "$file" ] || continue
  pid=$(cat "$file")
  # After a reboot the process ID may belong to another process.
  if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qE 'target/debug/(gamekeeper|hook-server) '; then
    kill "$pid"
  fi
done
"$here/../cluster/down.sh" demo
