{{/* Names are fixed: rights and leader election allow one installation in a cluster. */}}

{{- define "yurt-coordinator.labels" -}}
{{ include "yurt-coordinator.selector" . }}
{{ include "yurt-coordinator.release" . }}
{{- end }}

{{- define "yurt-coordinator.approver.labels" -}}
{{ include "yurt-coordinator.approver.selector" . }}
{{ include "yurt-coordinator.release" . }}
{{- end }}

{{- define "yurt-coordinator.release" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "yurt-coordinator.selector" -}}
app.kubernetes.io/name: coordinator-controller
{{- end }}

{{- define "yurt-coordinator.approver.selector" -}}
app.kubernetes.io/name: coordinator-approver
{{- end }}

{{/* The repository of an image: (list $ .Values.X.image). */}}
{{- define "yurt-coordinator.repository" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := required "image.registry must be set: push the images that `make images` builds somewhere, and say where, as --set image.registry=HOST/PATH" $root.Values.image.registry -}}
{{- printf "%s/%s" (trimSuffix "/" $registry) $image.repository -}}
{{- end }}

{{- define "yurt-coordinator.tag" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $image.tag | default $root.Chart.AppVersion -}}
{{- end }}

{{/* Everything finds each other in kube-system. */}}
{{- define "yurt-coordinator.checkNamespace" -}}
{{- if ne .Release.Namespace "kube-system" -}}
{{- fail (printf "install it with --namespace kube-system: hubs and coordinators look for each other there, not in %q" .Release.Namespace) -}}
{{- end -}}
{{- end }}
