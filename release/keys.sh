#!/usr/bin/env bash
# Prints the folder of the keys that sign a release: RELEASE_KEYS, which has cosign.key and cosign.pub (signatures of files
# and images), their password in the file password, and chart.gpg (the secret OpenPGP key of the chart, without a
# passphrase). Without RELEASE_KEYS, keys are made in target/release-keys, which only say that a release is from there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -n "${RELEASE_KEYS:-}" ]; then
  for file in cosign.key cosign.pub password chart.gpg; do
    [ -f "$RELEASE_KEYS/$file" ] || { echo "keys.sh: $RELEASE_KEYS has no $file" >&2; exit 1; }
  done
  realpath "$RELEASE_KEYS"
  exit
fi
folder=${CARGO_TARGET_DIR:-target}/release-keys
if [ ! -d "$folder" ]; then
  echo "keys.sh: RELEASE_KEYS is not set: making keys in $folder" >&2
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  mkdir "$made/keys" "$made/gpg"
  chmod 700 "$made/gpg"
  head -c 24 /dev/urandom | base64 >"$made/keys/password"
  (cd "$made/keys" && COSIGN_PASSWORD=$(cat password) cosign generate-key-pair >&2)
  gpg=(gpg --homedir "$made/gpg" --batch --quiet --pinentry-mode loopback --passphrase '')
  "${gpg[@]}" --quick-generate-key "Gamekeeper releases <releases@example.com>" rsa3072 sign never >&2
  "${gpg[@]}" --export-secret-keys >"$made/keys/chart.gpg"
  gpgconf --homedir "$made/gpg" --kill gpg-agent
  mkdir -p "$(dirname "$folder")"
  mv -T "$made/keys" "$folder"
fi
realpath "$folder"
