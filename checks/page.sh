#!/usr/bin/env bash
# Checks the format, the style and the types of the page's scripts, and the format of its styles.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

modules=$(./page-tools.sh)
[ -n "$modules" ] || { echo "page: skipped, because npm is not installed"; exit 0; }
"$modules/.bin/biome" check --config-path page --error-on-warnings ../kubectl-game/src/web/page
"$modules/.bin/tsc" --project page
echo "page: types checked"
