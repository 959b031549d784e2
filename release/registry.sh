#!/usr/bin/env bash
# Starts a registry on loopback, and prints its address and its process ID.
# usage: registry.sh LOG
set -euo pipefail
port=5001
while (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((port + 1)); done
crane registry serve --address "127.0.0.1:$port" >"$1" 2>&1 &
for _ in $(seq 100); do
  if (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; then break; fi
  sleep 0.1
done
echo "127.0.0.1:$port $!"
