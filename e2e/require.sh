#!/usr/bin/env bash
# Checks that programs are installed. Missing ones are installed with apt-get if possible; otherwise a message says what
# to install.
# usage: require.sh PROGRAM...
set -euo pipefail

package_of() {
  case $1 in
    cc) echo "gcc libc6-dev" ;;
    flock | setpriv | unshare) echo util-linux ;;
    ip) echo iproute2 ;;
    */cni/*) echo containernetworking-plugins ;;
    python3) echo "python3 python3-venv" ;;
    script) echo bsdutils ;;
    *) echo "$1" ;;
  esac
}

missing=()
for program in "$@"; do
  if command -v "$program" >/dev/null; then
    # rustup's cargo fails until the toolchain that rust-toolchain.toml names is installed.
    if [ "$program" = cargo ] && ! cargo --version >/dev/null 2>&1; then
      rustup toolchain install --no-self-update >&2 || { echo "the toolchain of rust-toolchain.toml could not be installed" >&2; exit 1; }
    fi
    continue
  fi
  case $program in
    cargo) echo "cargo is missing: install Rust, see https://rustup.rs" >&2; exit 1 ;;
    go) echo "go is missing: install Go, see https://go.dev/dl" >&2; exit 1 ;;
    *) read -ra packages <<<"$(package_of "$program")"; missing+=("${packages[@]}") ;;
  esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

root=()
[ "$(id -u)" = 0 ] || root=(sudo -n)
{
  command -v apt-get && "${root[@]}" true \
    && "${root[@]}" apt-get -qq update \
    && "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"
} >/dev/null 2>&1 || { echo "missing, and could not be installed here: install the packages ${missing[*]}" >&2; exit 1; }
