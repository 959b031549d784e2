#!/usr/bin/env bash
# Prints the manifest of the plugin for krew, with the checksums of the archives in a folder.
# usage: krew.sh VERSION SOURCE FOLDER
set -euo pipefail
version=$1 source=$2 folder=$3
cat <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: game
spec:
  version: v$version
  homepage: $source
  shortDescription: Show and control rollouts of game servers
  description: |
    Shows the rollouts of GameDeployments, GameStatefulSets and SidecarSets of
    Gamekeeper, waits for them, pauses, resumes and promotes them, runs failed
    hooks again, and moves pods without ending a match.
  caveats: |
    kubectl completes the plugin's commands if kubectl_complete-game of the
    same archive is on PATH.
  platforms:
END
for archive in "$folder/kubectl-game_${version}"_*.tar.gz; do
  name=$(basename "$archive" .tar.gz)
  arch=${name##*_}
  cat <<END
  - selector:
      matchLabels:
        os: linux
        arch: $arch
    uri: $source/releases/download/v$version/$name.tar.gz
    sha256: $(sha256sum "$archive" | cut -d ' ' -f 1)
    bin: kubectl-game
    files:
    - from: kubectl-game
      to: .
    - from: LICENSE
      to: .
END
done
