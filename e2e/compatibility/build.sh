#!/usr/bin/env bash
# Builds the control plane of a minor version of Kubernetes, or a version of Helm, once per machine, and prints the
# directory of the programs.
# usage: build.sh 1.30 | build.sh helm-3.14
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -f "$here/${1:-}/go.mod" ] || { echo "usage: build.sh VERSION, one of: $(cd "$here" && echo */ | tr -d /)" >&2; exit 1; }
# No debug information: it is not used, and makes the build longer.
exec "$here/../go-tools.sh" "$here/$1" "cluster-$1" "about 5 minutes" -gcflags=all=-dwarf=false
