#!/usr/bin/env bash
# Checks the Dockerfile as far as that is possible without a registry. The dependency layer must copy all manifests, and
# cargo must be able to read them without the sources. The last stage is built by buildah with a local binary: its user,
# labels and files must be right, and its program must exit with code 0 on SIGTERM. Prints what could not be checked.
# usage: check.sh [PROGRAM]    PROGRAM is target/debug/gamekeeper by default
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "${1:-target/debug/gamekeeper}")
fail() { echo "image check: $*" >&2; exit 1; }
work=$(mktemp -d)
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
container=
clean() {
  if [ -n "$container" ]; then buildah "${storage[@]}" rm "$container" >/dev/null; fi
  rm -rf "$work"
}
trap clean EXIT

# The dependency layer: all manifests, and placeholders for the source files that they name.
mkdir "$work/places"
cp Cargo.toml Cargo.lock "$work/places/"
for manifest in */Cargo.toml */*/Cargo.toml; do
  member=${manifest%/*}
  grep -q "^COPY $manifest $member/\$" Dockerfile || fail "the Dockerfile does not copy $manifest"
  install -D "$manifest" "$work/places/$manifest"
done
rust=$(sed -n 's/^channel = "\([0-9]*\.[0-9]*\).*/\1/p' rust-toolchain.toml)
grep -q "^ARG RUST_IMAGE=.*/rust:$rust-" Dockerfile || fail "the Dockerfile does not build with Rust $rust"
# Dependencies of other platforms were not downloaded for the build, so they are filtered out.
host=$(rustc -vV | sed -n 's/^host: //p')
(cd "$work/places" && "$OLDPWD/e2e/image/placeholders.sh" \
  && cargo metadata --locked --offline --filter-platform "$host" --format-version 1 >/dev/null) \
  || fail "cargo cannot read the manifests without the sources"

skip() { echo "image check: the last stage is not checked: $*"; exit 0; }
e2e/require.sh buildah || skip "buildah is missing"
# Root can build without namespaces. Other users may not be permitted to create them.
buildah "${storage[@]}" from --name probe scratch >"$work/probe" 2>&1 \
  || skip "buildah cannot work here: $(tail -1 "$work/probe")"
buildah "${storage[@]}" rm probe >/dev/null
[ "$(id -u)" = 0 ] || skip "mounting an image needs root"

[ -x "$program" ] || fail "$program does not exist: cargo build --bin gamekeeper"
mkdir "$work/context"
e2e/image/files.sh "$program" "$work/context/image"
sed -n '/^FROM scratch$/,$p' Dockerfile | sed 's|^COPY --from=build /image |COPY image |' >"$work/context/Dockerfile"
revision=0123456789012345678901234567890123456789
buildah "${storage[@]}" build --quiet --isolation chroot --format docker --tag checked \
  --build-arg REVISION="$revision" --build-arg VERSION=9.8.7 --build-arg CREATED=2026-01-02T03:04:05Z \
  --build-arg SOURCE=https://example.com/gamekeeper "$work/context" >/dev/null

value() { buildah "${storage[@]}" inspect --type image --format "{{$1}}" checked; }
is() { local found; found=$(value "$1"); [ "$found" = "$2" ] || fail "$1 is $found, not $2"; }
label() { is "index .OCIv1.Config.Labels \"org.opencontainers.image.$1\"" "$2"; }
is .OCIv1.Config.User 65532:65532
is .OCIv1.Config.Entrypoint '[/gamekeeper]'
is .OCIv1.Config.Cmd '[run]'
is .Docker.Config.StopSignal SIGTERM
label title gamekeeper
label licenses Apache-2.0
label version 9.8.7
label revision "$revision"
label created 2026-01-02T03:04:05Z
label source https://example.com/gamekeeper
label url https://example.com/gamekeeper

container=$(buildah "${storage[@]}" from checked)
root=$(buildah "${storage[@]}" mount "$container")
files=$(cd "$root" && find . -type f | sed 's|^\.||' | sort)
other=$(grep -vE '^/(gamekeeper|etc/ssl/certs/ca-certificates\.crt|(usr/)?lib(64)?/.*\.so(\.[0-9]+)*)$' <<<"$files" || true)
[ -z "$other" ] || fail "the image contains unnecessary files: $other"
for needed in /gamekeeper /etc/ssl/certs/ca-certificates.crt; do
  grep -qx "$needed" <<<"$files" || fail "the image does not contain $needed"
done

# The operator starts as the image's user, with only the image's files, and waits for a server that never answers.
mkdir "$root/check"
cat >"$root/check/kubeconfig" <<'END'
{"apiVersion": "v1", "kind": "Config", "current-context": "none",
 "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
 "users": [{"name": "none", "user": {}}],
 "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}]}
END
KUBECONFIG=/check/kubeconfig chroot --userspec=65532:65532 "$root" \
  /gamekeeper run --listen 127.0.0.1:0 >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 100); do
  if grep -q "does not respond" "$work/log" || ! kill -0 $pid 2>/dev/null; then break; fi
  sleep 0.1
done
kill -TERM $pid 2>/dev/null || fail "the operator is not running: $(cat "$work/log")"
code=0
wait $pid || code=$?
[ $code = 0 ] || fail "exit code $code on SIGTERM: $(cat "$work/log")"
echo "image check: user, labels, $(wc -l <<<"$files") files and the exit on SIGTERM are correct"
