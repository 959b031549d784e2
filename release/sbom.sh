#!/usr/bin/env bash
# Writes what a package is built from, as CycloneDX: PACKAGE.cdx.json for each package.
# usage: sbom.sh FOLDER PACKAGE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# cargo-cyclonedx writes next to the manifests, so it gets copies of them.
cp --parents Cargo.toml Cargo.lock ./*/Cargo.toml ./*/*/Cargo.toml "$work"
SOURCE_DATE_EPOCH=$(git show --no-patch --format=%ct)
export SOURCE_DATE_EPOCH
(cd "$work" && "$OLDPWD/e2e/image/placeholders.sh" \
  && cargo cyclonedx --quiet --format json --target "$(rustc -vV | sed -n 's/^host: //p')" --override-filename sbom)
for package in "$@"; do
  manifest=$work/$package
  [ -d "$manifest" ] || manifest=$work
  # A random number would make each file different, and paths are those of this machine.
  jq 'del(.serialNumber)' "$manifest/sbom.json" | sed "s|path+file://$work|path+file:///src|g" >"$folder/$package.cdx.json"
done
