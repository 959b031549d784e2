#!/bin/sh
# placeholders.sh: in a folder with only the manifests of the workspace, creates an empty source file for each program and
# library, so that cargo can build the dependencies alone.
set -eu
for manifest in Cargo.toml */Cargo.toml */*/Cargo.toml; do
  member=$(dirname "$manifest")
  mkdir -p "$member/src"
  : >"$member/src/lib.rs"
  echo 'fn main() {}' >"$member/src/main.rs"
  sed -n 's/^path = "\(.*\.rs\)"/\1/p' "$manifest" | while read -r path; do
    mkdir -p "$member/$(dirname "$path")"
    echo 'fn main() {}' >"$member/$path"
  done
done
