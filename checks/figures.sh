#!/usr/bin/env bash
# Counts what shows whether the structure of the code holds: who can write (one executor, one enum of writes), how many files
# an addition touches (CONTRIBUTING.md, "How to add"), and how long the code is. Lines include comments.
# usage: figures.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

shown() { printf '%-72s %s\n' "$1" "$2"; }
# rust FOLDER...: the files of code that is not only for tests.
rust() { find "$@" -name '*.rs' ! -path '*/tests/*' ! -name 'tests.rs' | sort; }
# naming WORDS FOLDER...: the files among them that contain these words.
naming() { local words=$1; shift; rust "$@" | xargs grep -lE "$words"; }
# lines: their lines, without modules of tests at the end of a file.
lines() { xargs awk 'FNR == 1 { ended = 0 } /^mod tests \{/ { ended = 1; n-- } !ended { n++ } END { print n }'; }

shown "executors: files that send the request of a core::write::Write" "$(naming 'change\(\)\.request\(' src | wc -l)"
shown "enums of writes" "$(naming '^pub enum Change' core/src/write | wc -l)"
variants=$(sed -n '/^pub enum Change/,/^}/p' core/src/write/change.rs | grep -oE '^    [A-Z][A-Za-z]+')
shown "  its variants" "$(wc -w <<<"$variants")"
# Each also has the rule that makes it.
files=$(for variant in $variants; do naming "\\bChange::$variant\\b" core/src src | wc -l; done | sort -n)
shown "  files that name a variant: minimum, median, maximum" \
  "$(head -1 <<<"$files"), $(sed -n "$((($(wc -l <<<"$files") + 1) / 2))p" <<<"$files"), $(tail -1 <<<"$files")"
shown "guard: doc tests that show that no other module makes a permit" "$(grep -c 'compile_fail' core/src/guard/mod.rs)"
shown "files of a hook provider (Prometheus)" "$(naming 'Provider::Prometheus' core/src src | wc -l), and its own"
shown "lines of src/reconcile, without tests" "$(rust src/reconcile | lines)"
shown "words of ARCHITECTURE.md" "$(wc -w <ARCHITECTURE.md)"
for part in core/src src kubectl-game lint-command model e2e; do
  shown "lines of $part, without and with tests" "$(rust "$part" | lines), $(find "$part" -name '*.rs' -exec cat {} + | wc -l)"
done
long=$(for file in $(rust core/src src kubectl-game/src model/src e2e/src); do
  count=$(lines <<<"$file")
  if ((count > 500)); then echo "$file ($count)"; fi
done)
shown "files of more than 500 lines, without tests" "$(grep -c . <<<"$long")"
echo -n "${long:+$long$'\n'}"
