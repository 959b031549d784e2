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
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "gamekeeper.labels" -}}
{{ include "gamekeeper.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of all objects, and additional ones. Takes a list [context, additional labels]. */}}
{{- define "gamekeeper.labelsAnd" -}}
{{ merge (include "gamekeeper.labels" (first .) | fromYaml) (last .) | toYaml }}
{{- end }}

{{/* The image, by digest if there is one. */}}
{{- define "gamekeeper.image" -}}
{{- $tagged := printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}{{ printf "%s@%s" $tagged . }}{{ else }}{{ $tagged }}{{ end -}}
{{- end }}

{{/* What all containers of the operator's image have in common. */}}
{{- define "gamekeeper.container" -}}
image: {{ include "gamekeeper.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.extraEnv }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end }}

{{/* What all pods have in common: credentials for their images, and the nodes on which they may run. */}}
{{- define "gamekeeper.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The service account, as the subjects of a binding. */}}
{{- define "gamekeeper.subjects" -}}
- kind: ServiceAccount
  name: {{ include "gamekeeper.fullname" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Name of the webhook's Service, Secret and configuration. */}}
{{- define "gamekeeper.webhook" -}}
{{ include "gamekeeper.fullname" . }}-webhook
{{- end }}

{{/* The operator's arguments. */}}
{{- define "gamekeeper.args" -}}
- run
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
- --lease-name={{ include "gamekeeper.fullname" . }}
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
- --webhook-listen=0.0.0.0:{{ .Values.admission.port }}
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
