#!/usr/bin/env bash
# Builds the programs that only releases need, once per machine, and prints their directories, as they go into PATH:
# crane, cosign and syft (tools/go.mod), krew and its validator (krew/go.mod), k9s (k9s/go.mod), Argo CD and its
# cache (argo-cd-controller/go.mod), cargo-auditable and cargo-cyclonedx, and helm and kubectl of the control plane.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cargo_programs=(cargo-auditable@0.7.7 cargo-cyclonedx@0.5.9)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
key=$({ echo "${cargo_programs[*]}"; cargo --version; } | sha256sum | cut -c1-12)
cargo=$cache/release-cargo-$key
if [ ! -d "$cargo" ]; then
  mkdir -p "$cache"
  exec 9>"$cargo.lock"
  flock 9
fi
if [ ! -d "$cargo" ]; then
  echo "Building ${cargo_programs[*]} (once on this machine, about 3 minutes on 2 cores) ..." >&2
  made=$(mktemp -d "$cache/building-XXXXXX")
  trap 'rm -rf "$made"' EXIT
  # They are built outside the workspace, with its toolchain.
  cargo install --quiet --locked --root "$made" --target-dir "$made/target" "${cargo_programs[@]}" >&2
  rm -rf "$made/target"
  chmod 755 "$made"
  mv -T "$made" "$cargo"
fi
tools=$("$here/../e2e/go-tools.sh" "$here/tools" release "about 8 minutes")
krew=$("$here/../e2e/go-tools.sh" "$here/krew" krew "about a minute")
k9s=$("$here/../e2e/go-tools.sh" "$here/k9s" k9s "about 3 minutes")
argo_cd=$("$here/../e2e/go-tools.sh" "$here/argo-cd-controller" argo-cd-controller "about 5 minutes")
cluster=$("$here/../e2e/cluster/build.sh")
echo "$cargo/bin:$tools:$krew:$k9s:$argo_cd:$cluster"
