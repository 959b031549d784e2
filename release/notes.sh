#!/usr/bin/env bash
# Prints the section of CHANGELOG.md for a version. Fails if there is none.
# usage: notes.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
notes=$(awk -v heading="## [$1]" 'index($0, "## ") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md)
[ -n "$notes" ] || { echo "notes.sh: CHANGELOG.md has no section [$1]: before a release, rename [Unreleased] to it" >&2; exit 1; }
echo "$notes"
