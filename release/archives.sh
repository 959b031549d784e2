#!/usr/bin/env bash
# Builds the operator and the plugin for this machine's architecture, with the list of their dependencies in them, and packs
# each into target/archives, with a CycloneDX file. The operator's image is there, too, as an image layout (OCI).
# Archives of the same commit have the same file names, times and owners.
# usage: archives.sh VERSION    (fails unless Cargo.toml and the chart have this version)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { echo "archives.sh: $*" >&2; exit 1; }
[ $# = 1 ] || die "usage: archives.sh VERSION"
version=$1

release/version.sh "$version"
case $(uname -sm) in
  "Linux x86_64") platform=linux_amd64 ;;
  "Linux aarch64") platform=linux_arm64 ;;
  *) die "there are no releases for $(uname -sm)" ;;
esac
release/notes.sh "$version" >/dev/null
PATH=$(release/programs.sh):$PATH
cargo auditable build --release --locked --package gamekeeper --package kubectl-game --bins

binaries=${CARGO_TARGET_DIR:-target}/release
rm -rf target/archives
mkdir -p target/archives
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
time=$(git show --no-patch --format=%ct)
release/sbom.sh "$work" gamekeeper kubectl-game

# pack NAME FILE...
pack() {
  local name=$1
  shift
  mkdir "$work/$name"
  cp -- "$@" "$work/$name.cdx.json" LICENSE "$work/$name"
  tar --create --directory "$work/$name" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" . \
    | gzip --no-name >"target/archives/${name}_${version}_$platform.tar.gz"
}
pack gamekeeper "$binaries/gamekeeper"
pack kubectl-game "$binaries/kubectl-game" kubectl-game/kubectl_complete-game kubectl-game/k9s/plugins.yaml kubectl-game/k9s/views.yaml
release/image.sh "$version" "$binaries/gamekeeper" "$work/gamekeeper.cdx.json" "target/archives/image_${version}_$platform"
ls -l target/archives
