# Sourced by start.sh: pods that wait for a hook before they are deleted or updated.
# shellcheck shell=bash

seconds=('s/interval: 60s/interval: 3s/')

say "Six pods, each guarded by a hook that measures three times"
wait_for "the previous pods are deleted" "" kubectl get pod -o name
apply_example examples/hooks/hook-template-success.yaml "${seconds[@]}"
apply_example examples/hooks/gamedeployment.yaml 's/PeriodSeconds: 30/PeriodSeconds: 1/'
wait_counts "6 6 6 6 6"
get

say "Scale in by one pod: the operator runs the hook first"
show kubectl scale --replicas=5 gamedeployment/test-gamedeployment
wait_for "the hook runs" Running phases
show kubectl get hookrun
wait_counts "5 6 6 6 6"
get

say "The hook is Successful: the pod is deleted with its HookRun"
wait_counts "5 5 5 5 5"
wait_for "the HookRun is deleted" true settled
get
show kubectl get pod
show kubectl get hookrun

say "An update in place: three of five pods (the partition keeps two), two at a time (maxUnavailable)"
set_image python:3.5
wait_for "two hooks run" "Running Running" phases
show kubectl get hookrun
get
wait_for "the first batch" "5 2 2 5 5" counts
wait_for "the hook of the second batch runs" Running phases
get
show kubectl get hookrun
wait_for "the second batch" "5 3 3 5 5" counts
wait_for "the HookRun is deleted" true settled
get
show kubectl get pod

say "A hook that fails keeps its pod"
apply_example examples/hooks/hook-template-fail.yaml "${seconds[@]}"
show kubectl scale --replicas=4 gamedeployment/test-gamedeployment
wait_for "the hook has failed" Failed phases
wait_for "the status shows it" Failed field '{.status.preDeleteHookCondition[*].phase}'
show kubectl get hookrun
get
show_status gamedeployment test-gamedeployment

say "The hook is fixed, and the user retries"
apply_example examples/hooks/hook-template-success.yaml "${seconds[@]}"
replace /spec/preDeleteUpdateStrategy/retry true
wait_for "the hook runs" Running phases
show kubectl get hookrun
wait_for "the pod is deleted" "4 4" kubectl get gamedeployment test-gamedeployment -o 'jsonpath={.spec.replicas} {.status.replicas}'
get
show kubectl delete gamedeployment/test-gamedeployment hooktemplate/test

say "Hooks that call the pod itself, at its address"
wait_for "the previous pods are deleted" "" kubectl get pod -o name
apply_example examples/hooks/hook-template-args.yaml "${seconds[@]}"
apply_example examples/hooks/gamedeployment-args.yaml
wait_counts "4 4 4 4 4"
show kubectl scale --replicas=2 gamedeployment/test-gamedeployment
wait_for "two hooks run" "Running Running" phases
show kubectl get hookrun
show kubectl get hookrun -o 'jsonpath={range .items[*]}{.spec.args}{"\n"}{end}'
wait_counts "2 2 2 2 2"
get
show kubectl get pod
