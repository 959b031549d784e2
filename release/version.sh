#!/usr/bin/env bash
# Fails unless Cargo.toml and the chart have the given version.
# usage: version.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for line in "Cargo.toml version = \"$1\"" "charts/gamekeeper/Chart.yaml version: $1" "charts/gamekeeper/Chart.yaml appVersion: $1"; do
  grep -qxF "${line#* }" "${line%% *}" || { echo "version.sh: ${line%% *} has no line: ${line#* }" >&2; exit 1; }
done
