#!/usr/bin/env bash
# Packages the chart with the image's address as its default.
# usage: chart.sh VERSION IMAGE FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1 image=$2 folder=$3
release/version.sh "$version"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r charts/gamekeeper "$work"
sed -i "s|^  repository: gamekeeper\$|  repository: $image|" "$work/gamekeeper/values.yaml"
grep -q "^  repository: $image\$" "$work/gamekeeper/values.yaml" || { echo "chart.sh: values.yaml has no image.repository" >&2; exit 1; }
helm package --destination "$folder" "$work/gamekeeper"
