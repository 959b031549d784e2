{{/* Refuses values that contradict each other, or that would have no effect. */}}
{{- define "gamekeeper.checks" -}}
{{- if not .Values.enabled }}
{{- fail "enabled: false is for the condition of an umbrella chart, where it leaves this chart out; to run no operator, set replicas to 0" }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: name an existing service account, because serviceAccount.create is false" }}
{{- end }}
{{- if and .Values.admission.enabled (eq (int .Values.admission.port) (int .Values.metrics.port)) }}
{{- fail (printf "admission.port: %d is the port of metrics.port; set another one" (int .Values.admission.port)) }}
{{- end }}
{{- include "gamekeeper.checkFlags" . }}
{{- end }}

{{/* The end of an error that names the value to use, if there is one. */}}
{{- define "gamekeeper.useValue" -}}
{{- with . }}: use the value {{ . }}{{ end -}}
{{- end }}

{{/* Refuses arguments and variables for which there is a value: the operator accepts each flag once, and a variable has no
     effect beside its flag. */}}
{{- define "gamekeeper.checkFlags" -}}
{{- $values := dict
  "--instance-file" ""
  "--listen" "metrics.port"
  "--log-format" "log.format"
  "--log-level" "log.level"
  "--lease-name" "fullnameOverride"
  "--lease-duration" "lease.durationSeconds"
  "--namespace" "watchNamespace"
  "--sidecar-sets" "sidecars.enabled"
  "--sidecars-in-all-namespaces" "sidecars.namespaces"
  "--hook-exec-namespaces" "hooks.exec"
  "--hook-allow-link-local" "hooks.allowLinkLocal"
  "--hook-allow-loopback" "hooks.allowLoopback"
  "--cache-namespace-mib" "cache.namespaceMiB"
  "--cache-total-mib" "cache.totalMiB"
  "--going-taints" "nodes.goingTaints"
  "--guarded-pods" "admission.guardedPods"
  "--guarded-priority-class" "guardedPods.priorityClass"
  "--lifecycle-hooks-image" "lifecycleHooks.enabled"
  "--webhook-listen" "admission.port"
  "--webhook-name" "fullnameOverride" }}
{{- $seen := dict }}
{{- range .Values.extraArgs }}
{{- $flag := regexFind "^--[a-z-]+" . }}
{{- if hasKey $values $flag }}
{{- fail (printf "extraArgs: the chart sets %s itself%s" $flag (include "gamekeeper.useValue" (get $values $flag))) }}
{{- end }}
{{- if and $flag (hasKey $seen $flag) }}
{{- fail (printf "extraArgs: %s is there twice" $flag) }}
{{- end }}
{{- $_ := set $seen $flag true }}
{{- end }}
{{- range .Values.extraEnv }}
{{- $flag := printf "--%s" (trimPrefix "GAMEKEEPER_" .name | lower | replace "_" "-") }}
{{- if and (hasPrefix "GAMEKEEPER_" .name) (hasKey $values $flag) }}
{{- fail (printf "extraEnv: %s has no effect%s" .name (include "gamekeeper.useValue" (get $values $flag))) }}
{{- end }}
{{- end }}
{{- end }}
