#!/usr/bin/env bash
# Makes a release of what is in target/archives, in target/release-VERSION; README.md lists what it consists of.
# usage: make.sh VERSION
# SOURCE is the address of the repository, and IMAGE that of the image, both without a default that anybody could use.
# RELEASE_KEYS are the keys that sign (keys.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1
release/version.sh "$version"
origin=$(git remote get-url origin 2>/dev/null || true)
case $origin in https://*) ;; *) origin='' ;; esac
export SOURCE=${SOURCE:-${origin%.git}}
if [ -z "$SOURCE" ]; then
  SOURCE=https://example.com/gamekeeper
  echo "make.sh: neither SOURCE nor origin is an https address: the release says $SOURCE" >&2
fi
image=${IMAGE:-gamekeeper}
PATH=$(release/programs.sh):$PATH
keys=$(release/keys.sh)
folder=target/release-$version
rm -rf "$folder"
mkdir -p "$folder"
work=$(mktemp -d)
read -r registry registry_pid < <(release/registry.sh "$work/registry.log")
trap 'kill $registry_pid; rm -rf "$work"' EXIT

release/notes.sh "$version" >"$folder/NOTES.md"
cp target/archives/*.tar.gz "$folder"
cp "$keys/cosign.pub" "$folder"

COSIGN_PASSWORD=$(cat "$keys/password")
export COSIGN_PASSWORD
# Nothing is sent to a transparency log: the signatures are made, and can be verified, without a network.
cosign signing-config create --out "$work/signing.json"
cosign trusted-root create --out "$work/root.json"
sign=(--key "$keys/cosign.key" --signing-config "$work/signing.json" --trusted-root "$work/root.json" --yes)
# cosign saves images with signatures of this format only.
sign_image=(--key "$keys/cosign.key" --tlog-upload=false --use-signing-config=false --new-bundle-format=false --yes)

# The image: one index for the images of all architectures, with its signature.
images=()
for layout in target/archives/image_"${version}"_*; do
  crane push "$layout" "$registry/gamekeeper:${layout##*_}" >/dev/null 2>&1
  images+=(--manifest "$registry/gamekeeper:${layout##*_}")
done
crane index append "${images[@]}" --tag "$registry/gamekeeper:$version" >/dev/null 2>&1
digest=$registry/gamekeeper@$(crane digest "$registry/gamekeeper:$version")
cosign sign "${sign_image[@]}" --sign-container-identity "$image" --allow-http-registry "$digest" 2>"$work/log" \
  || { cat "$work/log" >&2; exit 1; }
cosign save --allow-http-registry --dir "$folder/image" "$digest"

release/chart.sh "$version" "$image" "$keys/chart.gpg" "$folder"
gpg --homedir "$work" --quiet --batch --import "$keys/chart.gpg" 2>/dev/null
gpg --homedir "$work" --export >"$folder/chart-key.gpg"
gpgconf --homedir "$work" --kill gpg-agent

release/krew.sh "$version" "$SOURCE" "$folder" >"$folder/game.yaml"
for crd in crds/*.yaml; do echo ---; cat "$crd"; done >"$folder/crds.yaml"
release/argo-cd.sh "$work/argo-cd"
cp "$work/argo-cd/values.yaml" "$folder/argo-cd-values.yaml"
cp -r crds examples release/kustomize LICENSE "$work"
time=$(git show --no-patch --format=%ct)
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" argo-cd crds examples kustomize LICENSE \
  | gzip --no-name >"$folder/manifests_$version.tar.gz"

cd "$folder"
find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
for file in *.tar.gz *.tgz SHA256SUMS; do
  cosign sign-blob "${sign[@]}" --bundle "$file.sigstore.json" "$file" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
done
echo "$PWD"
