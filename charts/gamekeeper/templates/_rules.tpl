{{/* The operator's permissions in namespaces, verb by verb. */}}
{{- define "gamekeeper.rules" -}}
# Workloads: they are watched and patched (pause, retry, podsToDelete, annotations, finalizer), and their status is
# updated. If the operator cannot decode a workload, it patches only the conditions.
- apiGroups: [tkex.tencent.com]
  resources: [gamedeployments, gamestatefulsets]
  verbs: [get, list, watch, patch]
- apiGroups: [tkex.tencent.com]
  resources: [gamedeployments/status, gamestatefulsets/status]
  verbs: [update, patch]
# Owner references with blockOwnerDeletion, for the admission plugin OwnerReferencesPermissionEnforcement.
- apiGroups: [tkex.tencent.com]
  resources: [gamedeployments/finalizers, gamestatefulsets/finalizers, hookruns/finalizers]
  verbs: [update]
# Hooks.
- apiGroups: [tkex.tencent.com]
  resources: [hooktemplates]
  verbs: [list, watch]
- apiGroups: [tkex.tencent.com]
  resources: [hookruns]
  verbs: [get, list, watch, create, delete]
- apiGroups: [tkex.tencent.com]
  resources: [hookruns/status]
  verbs: [patch]
{{- if .Values.hooks.jobs }}
# Jobs that hooks run. They are created suspended, and started by a patch once their HookRun records them.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create, patch, delete]
{{- end }}
{{- if .Values.hooks.allSecrets }}
# Secrets for hooks. Only those labeled tkex.tencent.com/hook-access=true are used.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
# Pods.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/status, pods/resize]
  verbs: [patch]
# Budgets that guard pods against evictions. Other budgets that select the same pods make evictions fail, which the
# condition Guarded reports. If an upgrade turns the guard off, the operator or the Job unguard removes the existing
# budgets.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: {{ if .Values.admission.guardedPods }}[list, create, patch, delete]{{ else }}[list, delete]{{ end }}
# Volume claims of GameStatefulSets. The operator never deletes them: it sets the owner that they are deleted with.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
{{- if .Values.admission.enabled }}
# Dry runs of pod templates at admission.
- apiGroups: [""]
  resources: [podtemplates]
  verbs: [create]
{{- end }}
# Revisions of pod templates.
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
