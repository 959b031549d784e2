{{/* Base name of the installed objects. Two releases need different ones, because some objects are cluster-scoped. */}}
{{- define "gamekeeper.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Labels by which pods are selected; immutable. */}}
{{- define "gamekeeper.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "gamekeeper.labels" -}}
{{ include "gamekeeper.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "helm.sh/chart" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of all objects, and additional ones. Takes a list [context, additional labels]. */}}
{{- define "gamekeeper.labelsAnd" -}}
{{ merge (include "gamekeeper.labels" (first .) | fromYaml) (last .) | toYaml }}
{{- end }}

{{/* Annotations of what stays when the release is uninstalled, whichever tool installed it. */}}
{{- define "gamekeeper.keep" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
kustomize.toolkit.fluxcd.io/prune: disabled
{{- end }}

{{/* The image, by digest if there is one, from the registry of an umbrella chart if that sets one. */}}
{{- define "gamekeeper.image" -}}
{{- $repository := .Values.image.repository -}}
{{- with .Values.global.imageRegistry -}}
{{- $first := $repository | splitList "/" | first -}}
{{- if and (contains "/" $repository) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $repository = trimPrefix (print $first "/") $repository -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}
{{- end -}}
{{- $tagged := printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}{{ printf "%s@%s" $tagged . }}{{ else }}{{ $tagged }}{{ end -}}
{{- end }}

{{/* What all containers of the operator's image have in common. */}}
{{- define "gamekeeper.container" -}}
image: {{ include "gamekeeper.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- /* With an arena for each thread, glibc keeps twice the memory that is in use. */}}
{{- $env := list (dict "name" "MALLOC_ARENA_MAX" "value" "2") }}
{{- range .Values.extraEnv }}
{{- if eq .name "MALLOC_ARENA_MAX" }}{{ $env = list }}{{ end }}
{{- end }}
env: {{- concat $env .Values.extraEnv | toYaml | nindent 2 }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end }}

{{/* What all pods have in common: credentials for their images, name resolution, and the nodes on which they may run. */}}
{{- define "gamekeeper.pod" -}}
{{- $secrets := list }}
{{- range concat .Values.imagePullSecrets (.Values.global.imagePullSecrets | default list) }}
{{- if kindIs "map" . }}
{{- $secrets = append $secrets .name }}
{{- else }}
{{- $secrets = append $secrets . }}
{{- end }}
{{- end }}
{{- with uniq $secrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Name of the operator's service account. */}}
{{- define "gamekeeper.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "gamekeeper.fullname" .) -}}
{{- end }}

{{/* Name of the user that the API server knows the operator as. */}}
{{- define "gamekeeper.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "gamekeeper.serviceAccount" . }}
{{- end }}

{{/* The service account, as the subjects of a binding. */}}
{{- define "gamekeeper.subjects" -}}
- kind: ServiceAccount
  name: {{ include "gamekeeper.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* Name of the webhook's Service, Secret and configuration. */}}
{{- define "gamekeeper.webhook" -}}
{{ include "gamekeeper.fullname" . }}-webhook
{{- end }}

{{/* The operator's arguments. */}}
{{- define "gamekeeper.args" -}}
- run
- --listen=[::]:{{ .Values.metrics.port }}
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
- --lease-name={{ include "gamekeeper.fullname" . }}
- --lease-duration={{ .Values.lease.durationSeconds }}s
- --instance-file=/run/gamekeeper/instance
{{- with .Values.watchNamespace }}
- --namespace={{ . }}
{{- end }}
{{- if not .Values.sidecars.enabled }}
- --sidecar-sets=false
{{- else if eq .Values.sidecars.namespaces "All" }}
- --sidecars-in-all-namespaces
{{- end }}
{{- with .Values.hooks.exec }}
- --hook-exec-namespaces={{ join "," . }}
{{- end }}
- --cache-namespace-mib={{ .Values.cache.namespaceMiB }}
- --cache-total-mib={{ .Values.cache.totalMiB }}
{{- with .Values.nodes.goingTaints }}
- --going-taints={{ join "," . }}
{{- end }}
{{- if not .Values.admission.guardedPods }}
- --guarded-pods=false
{{- end }}
{{- with include "gamekeeper.guardedPriorityClass" . }}
- --guarded-priority-class={{ . }}
{{- end }}
{{- if .Values.hooks.allowLinkLocal }}
- --hook-allow-link-local
{{- end }}
{{- if .Values.hooks.allowLoopback }}
- --hook-allow-loopback
{{- end }}
{{- if .Values.lifecycleHooks.enabled }}
- --lifecycle-hooks-image={{ include "gamekeeper.image" . }}
{{- end }}
{{- if .Values.admission.enabled }}
- --webhook-listen=[::]:{{ .Values.admission.port }}
- --webhook-name={{ include "gamekeeper.webhook" . }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* The operator's PriorityClass: the chart's, an existing one, or none. */}}
{{- define "gamekeeper.priorityClass" -}}
{{- if .Values.priorityClass.create }}{{ include "gamekeeper.fullname" . }}{{ else }}{{ .Values.priorityClass.name }}{{ end -}}
{{- end }}

{{/* The PriorityClass of guarded pods: the chart's, an existing one, or none. */}}
{{- define "gamekeeper.guardedPriorityClass" -}}
{{- if .Values.guardedPods.priorityClass.create }}{{ include "gamekeeper.fullname" . }}-guarded{{ else }}{{ .Values.guardedPods.priorityClass.name }}{{ end -}}
{{- end }}
