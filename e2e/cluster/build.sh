#!/usr/bin/env bash
# Builds the control plane's tools (go.mod) once per machine, and prints their directory.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../go-tools.sh" "$here" cluster "about 6 minutes"
