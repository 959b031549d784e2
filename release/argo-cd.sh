#!/usr/bin/env bash
# Writes what Argo CD needs into a folder: resource_customizations, as in its repository, and values.yaml for its chart.
# usage: argo-cd.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/argo-cd"
folder=$(realpath -m "$1")
mkdir -p "$folder/resource_customizations"
cp --recursive --dereference tkex.tencent.com "$folder/resource_customizations"
# Its actions are those of a GameDeployment, which test them.
rm -r "$folder/resource_customizations/tkex.tencent.com/GameStatefulSet/actions/"{action_test.yaml,testdata}

# script INDENT FILE: a block of YAML.
script() { sed "s/^\(.\)/$(printf '%*s' "$1" '')\1/" "$2"; }
{
  echo "configs:"
  echo "  cm:"
  for kind in tkex.tencent.com/*/; do
    kind=${kind%/}
    echo "    resource.customizations.health.${kind/\//_}: |"
    script 6 "$kind/health.lua"
    if [ ! -d "$kind/actions" ]; then continue; fi
    echo "    resource.customizations.actions.${kind/\//_}: |"
    echo "      discovery.lua: |"
    script 8 "$kind/actions/discovery.lua"
    echo "      definitions:"
    for action in "$kind"/actions/*/action.lua; do
      echo "        - name: $(basename "$(dirname "$action")")"
      echo "          action.lua: |"
      script 12 "$action"
    done
  done
} >"$folder/values.yaml"
