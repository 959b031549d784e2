#!/usr/bin/env bash
# Runs shellcheck over every script of the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t scripts < <({ git ls-files -co --exclude-standard '*.sh'; git grep --untracked -lIE '^#! ?/.*sh$'; } | sort -u)
shellcheck "${scripts[@]}"
echo "shellcheck: ${#scripts[@]} scripts"
