#!/usr/bin/env bash
# Builds the program that runs the scripts of ../../release/argo-cd as Argo CD does, once per machine, and prints its
# directory.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../go-tools.sh" "$here" argo-cd "a few seconds"
