#!/usr/bin/env bash
# Checks a release with the programs that its users have: checksums, signatures, list of dependencies, image, chart, plugin;
# and plays the first hour of the README with what is in its folder alone.
# usage: check.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1
release=$(realpath "target/release-$version")
PATH=$(release/programs.sh):$PATH
case $(uname -m) in aarch64) arch=arm64 ;; *) arch=amd64 ;; esac
work=$(mktemp -d)
read -r registry registry_pid < <(release/registry.sh "$work/registry.log")
trap 'kill $registry_pid; rm -rf "$work"' EXIT
fail() { echo "release check: $*" >&2; exit 1; }
shown() { printf 'release check: %-12s %s\n' "$1" "$2"; }
# refused COMMAND...: fails if the command succeeds.
refused() { if "$@" >"$work/refused" 2>&1; then fail "was not refused: $*"; fi; }

# Files: each one has a checksum.
(cd "$release" && sha256sum --check --strict --quiet SHA256SUMS)
diff <(cut -c 67- "$release/SHA256SUMS") \
  <(cd "$release" && find . -type f ! -name SHA256SUMS ! -name '*.sigstore.json' -printf '%P\n' | LC_ALL=C sort) \
  || fail "SHA256SUMS does not list the files of the release"
shown checksums "$(wc -l <"$release/SHA256SUMS") files"

# Signatures of files, and of one that was changed.
verify=(cosign verify-blob --key "$release/cosign.pub" --insecure-ignore-tlog)
for file in "$release"/*.tar.gz "$release"/*.tgz "$release/SHA256SUMS"; do
  "${verify[@]}" --bundle "$file.sigstore.json" "$file" >/dev/null 2>"$work/verify" || fail "$(cat "$work/verify")"
done
cp "$release/SHA256SUMS" "$work/changed"
echo >>"$work/changed"
refused "${verify[@]}" --bundle "$release/SHA256SUMS.sigstore.json" "$work/changed"
shown signatures "$(find "$release" -maxdepth 1 -name '*.sigstore.json' | wc -l) files"

# Archives: each program says from what it is built, and so do the CycloneDX file and Cargo.lock.
for program in gamekeeper kubectl-game; do
  mkdir -p "$work/$program"
  tar --extract --gzip --directory "$work/$program" --file "$release/${program}_${version}_linux_$arch.tar.gz"
  syft scan --quiet --output json "file:$work/$program/$program" \
    | jq -r '.artifacts[] | select(.type == "rust-crate") | .name + " " + .version' | sort -u >"$work/$program.binary"
  jq -r '.components[] | .name + " " + .version' "$work/$program/$program.cdx.json" | sort -u >"$work/$program.cdx"
  awk '$1 == "name" { name = $3 } $1 == "version" { print name, $3 }' Cargo.lock | tr -d '"' | sort -u >"$work/lock"
  [ "$(wc -l <"$work/$program.binary")" -gt 100 ] || fail "$program lists few dependencies: $(cat "$work/$program.binary")"
  unknown=$(comm -23 "$work/$program.binary" "$work/lock")
  [ -z "$unknown" ] || fail "$program contains what Cargo.lock does not: $unknown"
  missing=$(comm -23 "$work/$program.binary" <({ cat "$work/$program.cdx"; echo "$program $version"; } | sort -u))
  [ -z "$missing" ] || fail "$program.cdx.json lacks: $missing"
  shown "$program" "$("$work/$program/$program" --version), $(wc -l <"$work/$program.binary") crates, as in Cargo.lock"
done

# The image: its signature, its configuration, and that it contains the program of the archive.
cosign load --allow-http-registry --dir "$release/image" "$registry/gamekeeper:$version" 2>"$work/load" || fail "$(cat "$work/load")"
cosign verify --key "$release/cosign.pub" --insecure-ignore-tlog --allow-http-registry "$registry/gamekeeper:$version" \
  >/dev/null 2>"$work/verify" || fail "$(cat "$work/verify")"
crane export --platform "linux/$arch" "$registry/gamekeeper:$version" "$work/image.tar"
mkdir "$work/image"
tar --extract --directory "$work/image" --file "$work/image.tar"
cmp "$work/image/gamekeeper" "$work/gamekeeper/gamekeeper"
cmp "$work/image/usr/share/sbom/gamekeeper.cdx.json" "$work/gamekeeper/gamekeeper.cdx.json"
config=$(crane config --platform "linux/$arch" "$registry/gamekeeper:$version")
[ "$(jq -r '.config | .User + " " + .Labels["org.opencontainers.image.version"]' <<<"$config")" = "65532:65532 $version" ] \
  || fail "the image's configuration is $config"
shown image "$(crane digest "$registry/gamekeeper:$version"), signed"

# The chart: pushed to a registry and pulled from there, verified; one that was changed is refused.
helm push --plain-http "$release/gamekeeper-$version.tgz" "oci://$registry/charts" >/dev/null 2>&1
pull=(helm pull --plain-http --verify --keyring "$release/chart-key.gpg")
"${pull[@]}" --destination "$work" "oci://$registry/charts/gamekeeper" --version "$version" >/dev/null 2>&1 \
  || fail "the chart cannot be pulled and verified"
mkdir "$work/charts"
cp "$release/gamekeeper-$version.tgz.prov" "$work/charts"
{ cat "$release/gamekeeper-$version.tgz"; echo; } >"$work/charts/gamekeeper-$version.tgz"
refused helm verify --keyring "$release/chart-key.gpg" "$work/charts/gamekeeper-$version.tgz"
fingerprint=$(gpg --homedir "$work" --show-keys --with-colons "$release/chart-key.gpg" 2>/dev/null | awk -F: 'length($10) == 40 { print $10; exit }')
helm show chart "$release/gamekeeper-$version.tgz" | grep -q "fingerprint: $fingerprint" || fail "the chart names another key"
shown chart "oci://$registry/charts/gamekeeper:$version, verified"

# The plugin: validated, and installed without a network.
validate-krew-manifest -manifest "$release/game.yaml" -skip-install 2>"$work/krew" || fail "$(cat "$work/krew")"
KREW_ROOT=$work/krew-root krew install --manifest="$release/game.yaml" \
  --archive="$release/kubectl-game_${version}_linux_$arch.tar.gz" </dev/null 2>"$work/krew" || fail "$(cat "$work/krew")"
PATH=$work/krew-root/bin:$PATH kubectl game --version >/dev/null
shown krew "kubectl game is installed"

# Manifests: the CRDs are those of the chart, and the scripts for Argo CD those that the tests run.
mkdir "$work/manifests"
tar --extract --gzip --directory "$work/manifests" --file "$release/manifests_$version.tar.gz"
tar --extract --gzip --directory "$work" --file "$release/gamekeeper-$version.tgz" gamekeeper/files/crds
diff --recursive "$work/gamekeeper/files/crds" "$work/manifests/crds"
release/argo-cd.sh "$work/argo-cd"
diff --recursive "$work/argo-cd/resource_customizations" "$work/manifests/argo-cd/resource_customizations"
cmp "$work/manifests/argo-cd/values.yaml" "$release/argo-cd-values.yaml"
shown manifests "CRDs, examples, scripts for Argo CD"

# k9s, with the plugins and views of the plugin's archive.
for file in plugins.yaml views.yaml; do cmp "kubectl-game/k9s/$file" "$work/kubectl-game/$file"; done
tests=(cargo test --quiet --locked --workspace --test main --)
GAMEKEEPER_K9S=$(command -v k9s) "${tests[@]}" k9s:: >"$work/k9s.log" 2>&1 || fail "$(cat "$work/k9s.log")"
shown k9s "shows, pauses"

# Argo CD, with the scripts that were compared above.
argo_cd=$(dirname "$(command -v argo-cd-redis)")
GAMEKEEPER_ARGO_CD=$argo_cd "${tests[@]}" argo_cd:: >"$work/argo-cd.log" 2>&1 || fail "$(cat "$work/argo-cd.log")"
shown "Argo CD" "syncs, heals, leaves alone what it ignores"

# The first hour, with the chart of the registry, the program of the image, the plugin of krew, and the examples.
mkdir "$work/programs"
cp "$work/image/gamekeeper" "$work/programs"
cp --dereference "$work/krew-root/bin/kubectl-game" "$work/programs"
cargo build --quiet --locked --package e2e --bin first-hour
GAMEKEEPER_PROGRAMS=$work/programs target/debug/first-hour \
  "oci://$registry/charts/gamekeeper --plain-http --version $version --verify --keyring $release/chart-key.gpg" "$work/manifests"
shown "first hour" "played as in the README"
