# Sourced by start.sh: functions of the walkthroughs.
# shellcheck shell=bash

bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi

# A heading.
say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }

# A command line.
typed() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; }

# A command with its output.
show() {
  typed "$(quoted "$@")"
  "$@"
}

# The status of an object, as YAML.
show_status() {
  typed "kubectl get $* -o yaml | sed -n '/^status:/,\$p'"
  kubectl get "$@" -o yaml | sed -n '/^status:/,$p'
}

quoted() {
  local word line=
  for word in "$@"; do
    case $word in
      *[\ \"\{\*\\]*) line+=" '$word'" ;;
      *) line+=" $word" ;;
    esac
  done
  echo "${line# }"
}

# kubectl apply of an example, with shorter durations and the hook server of this machine.
apply_example() {
  local file=$1 edits=(-e 's/1\.1\.1\.1/127.0.0.1/') change
  shift
  for change in "$@"; do edits+=(-e "$change"); done
  typed "sed $(quoted "${edits[@]}") $file | kubectl apply -f -"
  sed "${edits[@]}" "$file" | kubectl apply -f -
}

# kubectl patch of one field of the workload.
replace() {
  show kubectl patch gamedeployment test-gamedeployment --type=json \
    "-p=[{\"op\": \"replace\", \"path\": \"$1\", \"value\": $2}]"
}

set_image() { replace /spec/template/spec/containers/0/image "\"$1\""; }
get() { show kubectl get gamedeployment; }

# Waits until a command prints the expected text, or (expected: true) until it succeeds.
wait_for() {
  local condition=$1 expected=$2 deadline=$((SECONDS + 90)) printed
  shift 2
  while :; do
    if printed=$("$@" 2>&1); then
      if [ "$expected" = true ] || [ "$printed" = "$expected" ]; then return; fi
    fi
    if [ $SECONDS -ge $deadline ]; then
      echo "demo: still waiting after 90 s: $condition (expected $expected, found $printed)" >&2
      echo "demo: the cluster is still up; logs are in ${state:?}" >&2
      exit 1
    fi
    sleep 0.2
  done
}

# DESIRED UPDATED UPDATED_READY READY TOTAL
counts() {
  kubectl get gamedeployment test-gamedeployment -o jsonpath='{.spec.replicas} {.status.updatedReplicas} {.status.updatedReadyReplicas} {.status.readyReplicas} {.status.replicas}'
}
wait_counts() { wait_for "the counts $1" "$1" counts; }
field() { kubectl get gamedeployment test-gamedeployment -o jsonpath="$1"; }
phases() { kubectl get hookrun -o jsonpath='{.items[*].status.phase}'; }
# No HookRun, and every workload Ready.
settled() { [ -z "$(kubectl get hookrun -o name)" ] && kubectl wait --for=condition=Ready --timeout=1s gamedeployment --all; }

# Starts a program that keeps running when this script ends.
background() {
  local name=$1
  shift
  setsid nohup "$@" >"$state/$name.log" 2>&1 </dev/null &
  echo $! >"$state/$name.pid"
}

# Waits until a program answers at a URL.
wait_answer() {
  local name=$1 url=$2
  wait_for "$name answers" true answers_or_ended "$name" "$url"
  kill -0 "$(cat "$state/$name.pid")" 2>/dev/null || { echo "demo: $name ended: $(tail -1 "$state/$name.log")" >&2; exit 1; }
}

answers_or_ended() {
  curl --silent --fail --output /dev/null "$2" || ! kill -0 "$(cat "$state/$1.pid")" 2>/dev/null
}

# The first port from $1 on which no process listens.
free_port() {
  local port=$1
  while (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}
