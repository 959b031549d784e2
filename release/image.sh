#!/usr/bin/env bash
# Builds the last stage of the Dockerfile with a program of this machine, as an image layout (OCI). Needs buildah, and root.
# usage: image.sh VERSION PROGRAM SBOM FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# = 4 ] || { echo "usage: image.sh VERSION PROGRAM SBOM FOLDER" >&2; exit 1; }
version=$1 program=$2 sbom=$3 folder=$4
e2e/require.sh buildah
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
e2e/image/files.sh "$program" "$work/context/image"
install -D -m 644 "$sbom" "$work/context/image/usr/share/sbom/gamekeeper.cdx.json"
sed -n '/^FROM scratch$/,$p' Dockerfile | sed 's|^COPY --from=build /image |COPY image |' >"$work/context/Dockerfile"
time=$(git show --no-patch --format=%ct)
buildah "${storage[@]}" build --quiet --isolation chroot --format oci --timestamp "$time" --tag release \
  --build-arg VERSION="$version" --build-arg REVISION="$(git rev-parse HEAD)" \
  --build-arg CREATED="$(git show --no-patch --format=%cI)" --build-arg SOURCE="${SOURCE:-}" "$work/context" >/dev/null
rm -rf "$folder"
buildah "${storage[@]}" push --quiet release "oci:$folder:$version"
