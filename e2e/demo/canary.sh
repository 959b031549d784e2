# Sourced by start.sh: a rollout in steps.
# shellcheck shell=bash

say "A game with four pods, updated in steps: one pod, pause, two pods, pause for 10 s, run a hook"
apply_example examples/canary/hooktemplate.yaml
apply_example examples/canary/gamedeployment.yaml 's/duration: 60/duration: 10/' 's/PeriodSeconds: 30/PeriodSeconds: 1/'
wait_counts "4 4 4 4 4"
get

say "A new image: step 0 updates one pod, step 1 pauses"
set_image python:3.5
wait_for "the pause of step 1" "PausedByCanaryPauseStep 1" field '{.status.pauseConditions[*].reason} {.status.currentStepIndex}'
get
show kubectl get pod -l app=test-gamedeployment
show kubectl get gamedeployment test-gamedeployment -o 'jsonpath=paused: {.spec.updateStrategy.paused}{"\n"}'
show_status gamedeployment test-gamedeployment

say "A user resumes: step 2 updates a second pod, step 3 pauses for 10 s"
replace /spec/updateStrategy/paused false
wait_for "the pause of step 3" "PausedByCanaryPauseStep 3" field '{.status.pauseConditions[*].reason} {.status.currentStepIndex}'
get

say "The pause ends after 10 s; step 4 runs the hook, which requires an age below 30 and measures 45"
wait_for "the pause of step 4" "PausedByStepBasedHook 4" field '{.status.pauseConditions[*].reason} {.status.currentStepIndex}'
show kubectl get hookrun
show_status "$(kubectl get hookrun -o name)"
show_status gamedeployment test-gamedeployment

say "The user resumes anyway: the remaining pods are updated"
replace /spec/updateStrategy/paused false
wait_counts "4 4 4 4 4"
get
show kubectl wait --for=condition=Ready --timeout=30s gamedeployment/test-gamedeployment
show kubectl delete gamedeployment/test-gamedeployment hooktemplate/test
