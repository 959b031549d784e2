#!/usr/bin/env bash
# Runs the areas of end-to-end tests (areas) on other versions of Kubernetes, the installation with other versions of
# Helm, and the area kubectl with its oldest and newest version, and prints a table: how many tests of each area passed.
# The output of the tests is in target/compatibility.
# usage: run.sh [VERSION...]    such as 1.30, helm-4 or kubectl-1.30; all of them if none is given
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
versions=("$@")
if [ $# = 0 ]; then
  mapfile -t versions < <(cd "$here" && printf '%s\n' */go.mod | xargs -n 1 dirname | sort -V)
  versions+=("kubectl-${versions[0]}" "kubectl-$(printf '%s\n' "${versions[@]}" | grep '^1' | tail -n 1)")
fi
mapfile -t areas < <(sed '/^#/d; s/ .*//' "$here/areas" | uniq)
logs=target/compatibility
mkdir -p "$logs"

# One row of the table, from the output of the tests: "test NAME ... ok".
row() {
  awk -v name="$1" '
    NR == FNR && !/^#/ {
      prefix[++entries] = $2; area[entries] = $1
      if (!($1 in all)) { all[$1] = 0; order[++areas] = $1 }
    }
    NR > FNR && $1 == "test" && $3 == "..." {
      for (i = 1; i <= entries; i++) if (index($2, prefix[i]) == 1) {
        all[area[i]]++
        if ($4 == "ok") passed[area[i]]++
        next
      }
    }
    END {
      printf "| %s", name
      for (i = 1; i <= areas; i++) printf " | %s", all[order[i]] ? passed[order[i]] + 0 " of " all[order[i]] : ""
      print " |"
    }' "$here/areas" "$2"
}

failed=0 rows=()
for version in "${versions[@]}"; do
  folder=${version#kubectl-}
  bin=$("$here/build.sh" "$folder")
  tested=$(sed -nE 's#^\t(k8s.io/kubernetes|helm.sh/helm/v[0-9]+) v([^ ]+).*#\2#p' "$here/$folder/go.mod")
  case $version in
    helm-*) name="Helm $tested" settings=(E2E_HELM="$bin/helm" E2E_AREAS=install) ;;
    kubectl-*) name="kubectl $tested" settings=(E2E_KUBECTL="$bin/kubectl" E2E_AREAS=kubectl) ;;
    *) name=$tested settings=(E2E_KUBERNETES="$version" E2E_AREAS="$(IFS=,; echo "${areas[*]}")") ;;
  esac
  echo "$name ..." >&2
  env "${settings[@]}" cargo test --locked --workspace --test main >"$logs/$version.log" 2>&1 \
    || { failed=1; grep -E '\.\.\. FAILED|^error' "$logs/$version.log" >&2 || true; echo "see $logs/$version.log" >&2; }
  rows+=("$(row "$name" "$logs/$version.log")")
done

printf '| version'; printf ' | %s' "${areas[@]}"; echo ' |'
printf '|---'; printf '|---%.0s' "${areas[@]}"; echo '|'
printf '%s\n' "${rows[@]}"
exit $failed
