#!/usr/bin/env bash
# Counts what shows whether the structure of the code holds: who can write, what an addition touches, and how long the code is.
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
variants=$(sed -n '/^pub enum Change/,/^}/p' core/src/write/change.rs | grep -cE '^    [A-Z]')
shown "  its variants" "$variants"
shown "guard: doc tests that show that no other module makes a permit" "$(grep -c 'compile_fail' core/src/guard/mod.rs)"
shown "files of a kind of write (AdmitNode)" "$(naming 'Change::AdmitNode' core/src src | wc -l), and the rule that makes it"
shown "files of a hook provider (Prometheus)" "$(naming 'Provider::Prometheus' core/src src | wc -l), and its own"
shown "lines of src/reconcile, without tests" "$(rust src/reconcile | lines)"
shown "words of ARCHITECTURE.md" "$(wc -w <ARCHITECTURE.md)"
for part in core/src src kubectl-game lint-command model e2e; do
  shown "lines of $part, without and with tests" "$(rust "$part" | lines), $(find "$part" -name '*.rs' -exec cat {} + | wc -l)"
done
shown "files of more than 500 lines, without tests" "$(rust core/src src kubectl-game/src model/src e2e/src | xargs wc -l | awk '$2 != "total" && $1 > 500' | wc -l)"
