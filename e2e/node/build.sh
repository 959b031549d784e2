#!/usr/bin/env bash
# Builds kubelet, containerd and its shim (go.mod) once per machine, and prints their directory.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../go-tools.sh" "$here" node "about 3 minutes" -tags "no_btrfs no_zfs no_devmapper no_tracing"
