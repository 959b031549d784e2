{{/* Whether Helm itself installs or upgrades the release. When the chart is only rendered (helm template, kustomize,
     Argo CD), there is no cluster to look anything up in, and Helm runs no hooks. This role exists in each cluster, and
     Helm reads roles anyway, as it installs some. */}}
{{- define "gamekeeper.isInstalledByHelm" -}}
{{- if lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "view" }}true{{ end -}}
{{- end }}

{{/* The base name with a suffix; with a hash if it would be too long. Takes a list [context, suffix, maximum length]. */}}
{{- define "gamekeeper.shortName" -}}
{{- $operator := include "gamekeeper.fullname" (first .) -}}
{{- $suffix := index . 1 -}}
{{- if le (len (print $operator $suffix)) (last .) -}}
{{ $operator }}{{ $suffix }}
{{- else -}}
{{- $hash := sha256sum $operator | trunc 8 -}}
{{ $operator | trunc (sub (sub (last .) (len $suffix)) 9 | int) | trimSuffix "-" }}-{{ $hash }}{{ $suffix }}
{{- end -}}
{{- end }}

{{/* The name of a Job. It ends with a hash of the Job's content, because a Job cannot be changed: another image needs
     another name. At most 63 characters, because it is also the value of a label of its pods. Takes a list [context,
     suffix, content]. */}}
{{- define "gamekeeper.jobName" -}}
{{ include "gamekeeper.shortName" (list (first .) (index . 1) 54) }}-{{ last . | sha256sum | trunc 8 }}
{{- end }}

{{/* Metadata of the pods of Jobs. Their labels are not those by which the operator's pods are selected. Takes a list
     [context, component]. */}}
{{- define "gamekeeper.jobPodMetadata" -}}
{{- $context := first . -}}
{{- $values := $context.Values -}}
{{- with merge dict $values.jobs.podAnnotations $values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- $labels := include "gamekeeper.jobSelectorLabels" $context | fromYaml }}
  {{- $labels = merge (dict "app.kubernetes.io/component" (last .)) $labels }}
  {{- merge $labels $values.jobs.podLabels $values.podLabels $values.commonLabels | toYaml | nindent 2 }}
{{- end }}

{{/* Labels by which the pods of Jobs are selected. */}}
{{- define "gamekeeper.jobSelectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-job
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The spec of a Job that removes guards. Takes a list [context, arguments]. */}}
{{- define "gamekeeper.unguard" -}}
{{- $context := first . -}}
# Less than the timeout of helm uninstall. The command starts the operator again when it is told to end.
activeDeadlineSeconds: {{ $context.Values.uninstall.deadlineSeconds }}
ttlSecondsAfterFinished: 86400
# A pod that is lost is replaced, but a refusal would be repeated.
backoffLimit: 2
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget}]
    - action: FailJob
      onExitCodes: {containerName: unguard, operator: NotIn, values: [0]}
template:
  metadata: {{- include "gamekeeper.jobPodMetadata" (list $context "unguard") | nindent 4 }}
  spec:
    restartPolicy: Never
    # The policy lets only the operator change budgets and pods.
    serviceAccountName: {{ include "gamekeeper.serviceAccount" $context | quote }}
    {{- include "gamekeeper.pod" $context | nindent 4 }}
    {{- with include "gamekeeper.priorityClass" $context }}
    priorityClassName: {{ . | quote }}
    {{- end }}
    {{- with $context.Values.podSecurityContext }}
    securityContext: {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: unguard
        {{- include "gamekeeper.container" $context | nindent 8 }}
        args: {{- last . | toYaml | nindent 10 }}
{{- end }}

{{/* The spec of a Job that runs a script of bootstrapHooks. Takes a list [context, script, what it waits for]. */}}
{{- define "gamekeeper.bootstrap" -}}
{{- $context := first . -}}
{{- $hook := index . 1 -}}
{{- $waitsFor := last . -}}
{{- $operator := include "gamekeeper.fullname" $context -}}
# A script is retried in its container; this is for pods that are lost.
backoffLimit: 100
template:
  metadata: {{- include "gamekeeper.jobPodMetadata" (list $context "bootstrap-hook") | nindent 4 }}
  spec:
    restartPolicy: Never
    enableServiceLinks: false
    {{- if $waitsFor }}
    serviceAccountName: {{ printf "%s-bootstrap" $operator | quote }}
    {{- else }}
    # The service account is installed after this hook.
    automountServiceAccountToken: false
    {{- end }}
    {{- include "gamekeeper.pod" $context | nindent 4 }}
    # The user's image decides which user runs a script.
    {{- with omit $context.Values.podSecurityContext "runAsNonRoot" "runAsUser" "runAsGroup" }}
    securityContext: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $waitsFor }}
    initContainers:
      - name: wait
        {{- include "gamekeeper.container" $context | nindent 8 }}
        args: [wait-for, {{ . }}, --lease-name={{ $operator }}]
    {{- end }}
    containers:
      - name: script
        image: {{ $context.Values.bootstrapHooks.image | quote }}
        resources: {{- toYaml $context.Values.resources | nindent 10 }}
        command:
          - /bin/sh
          - -c
          - |
            script=/app/hooks/{{ $hook }}
            if [ ! -e "$script" ]; then
              echo "there is no script {{ $hook }}"
              exit 0
            fi
            until "$script"; do
              echo "{{ $hook }} failed with exit code $?; next attempt in 10 s" >&2
              sleep 10
            done
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {drop: [ALL]}
        volumeMounts:
          - {name: hooks, mountPath: /app/hooks, readOnly: true}
    volumes:
      - name: hooks
        configMap: {name: {{ $context.Values.bootstrapHooks.configMap | quote }}, defaultMode: 0755}
{{- end }}
