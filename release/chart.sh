#!/usr/bin/env bash
# Packages the chart with the image's address as its default, and signs it.
# usage: chart.sh VERSION IMAGE KEYRING FOLDER    SOURCE is the address of the repository
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1 image=$2 keyring=$3 folder=$4
die() { echo "chart.sh: $*" >&2; exit 1; }
release/version.sh "$version"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r charts/gamekeeper "$work"
chart=$work/gamekeeper
sed -i "s|^  repository: gamekeeper\$|  repository: $image|" "$chart/values.yaml"
grep -q "^  repository: $image\$" "$chart/values.yaml" || die "values.yaml has no image.repository"
sed -i "s|image: gamekeeper:|image: $image:|" "$chart/Chart.yaml"
keys=$(gpg --homedir "$work" --show-keys --with-colons "$keyring")
fingerprint=$(awk -F: 'length($10) == 40 { print $10; exit }' <<<"$keys")
owner=$(awk -F: '$1 == "uid" { print $10; exit }' <<<"$keys")
[ -n "$owner" ] || die "$keyring has no key"
cat >>"$chart/Chart.yaml" <<END
  artifacthub.io/links: |
    - name: Documentation
      url: $SOURCE/tree/v$version/docs
    - name: Source
      url: $SOURCE/tree/v$version
  artifacthub.io/signKey: |
    fingerprint: $fingerprint
    url: $SOURCE/releases/download/v$version/chart-key.gpg
END
sed -i "s|^annotations:|home: $SOURCE\nsources: [$SOURCE]\nannotations:|" "$chart/Chart.yaml"
helm package --sign --key "$owner" --keyring "$keyring" --destination "$folder" "$chart" >/dev/null
