#!/usr/bin/env bash
# Prints the path of a Prometheus binary: the installed one, or Debian's package unpacked into the cache. Unpacking needs
# no root, and starts no service.
set -euo pipefail
die() { echo "prometheus.sh: $*" >&2; exit 1; }

if command -v prometheus; then exit; fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gamekeeper
binary=$cache/prometheus/usr/bin/prometheus
if [ ! -x "$binary" ]; then
  { command -v apt-get && command -v dpkg-deb; } >/dev/null \
    || die "Prometheus is missing and this is not Debian: put a prometheus binary on the PATH"
  made=$(mktemp -d "$cache/unpacking-XXXXXX")
  trap 'rm -rf "$made"' EXIT
  mkdir -p "$made/lists/partial" "$made/archives/partial"
  apt=(apt-get -qq -o "Dir::State::Lists=$made/lists" -o "Dir::Cache=$made" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  cd "$made"
  { "${apt[@]}" update && "${apt[@]}" download prometheus; } >&2 \
    || die "Prometheus is missing and Debian's package could not be downloaded: put a prometheus binary on the PATH"
  dpkg-deb -x prometheus_*.deb "$made/unpacked"
  mv -T "$made/unpacked" "$cache/prometheus" 2>/dev/null || [ -x "$binary" ]
fi
echo "$binary"
