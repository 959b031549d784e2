#!/usr/bin/env bash
# Checks the alerts and runs their unit tests, with promtool.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
promtool=$(dirname "$("$here/../cluster/prometheus.sh")")/promtool
"$promtool" check rules "$here/../../charts/gamekeeper/files/alerts.yaml"
"$promtool" test rules "$here/alerts.test.yaml"
