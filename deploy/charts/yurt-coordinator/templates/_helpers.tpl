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

{{/* The image of coordinator-controller. */}}
{{- define "yurt-coordinator.controllerImage" -}}
{{- $image := .Values.controller.image -}}
{{- $tag := include "yurt-coordinator.tag" (list . $image) -}}
{{- $digest := $image.digest | default (index (include "yurt-coordinator.digests" . | fromJson) (printf "coordinator-controller:%s" $tag)) -}}
{{- include "yurt-coordinator.repository" (list . $image) }}:{{ $tag }}{{ with $digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The digests of the release's images by PROGRAM:TAG, as JSON: a chart that is packed has them. */}}
{{- define "yurt-coordinator.digests" -}}
{{- .Files.Get "files/digests.json" | default "{}" -}}
{{- end }}

{{/* The digests of coordinators' images, TAG=DIGEST,…: the release's, and those that values say. */}}
{{- define "yurt-coordinator.coordinatorDigests" -}}
{{- $digests := dict -}}
{{- range $name, $digest := include "yurt-coordinator.digests" . | fromJson -}}
{{- if hasPrefix "yurt-coordinator:" $name -}}
{{- $digests = set $digests (trimPrefix "yurt-coordinator:" $name) $digest -}}
{{- end -}}
{{- end -}}
{{- $digests = merge (dict) .Values.coordinator.image.digests $digests -}}
{{- $all := list -}}
{{- range $tag, $digest := $digests -}}
{{- $all = append $all (printf "%s=%s" $tag $digest) -}}
{{- end -}}
{{- join "," $all -}}
{{- end }}

{{/* Everything finds each other in kube-system. */}}
{{- define "yurt-coordinator.checkNamespace" -}}
{{- if ne .Release.Namespace "kube-system" -}}
{{- fail (printf "install it with --namespace kube-system: hubs and coordinators look for each other there, not in %q" .Release.Namespace) -}}
{{- end -}}
{{- end }}

{{/* Whether certificates of hubs and persons are signed. */}}
{{- define "yurt-coordinator.signer" -}}
{{- $set := .Values.controllers.signer -}}
{{- ternary .Values.controllers.yurtcoordinator $set (kindIs "invalid" $set) -}}
{{- end }}

{{/* The users who taint nodes so that their Pods are evicted, in a policy. */}}
{{- define "yurt-coordinator.evictors" -}}
{{- $users := list -}}
{{- range .root.Values.policies.evictors -}}
{{- $users = append $users (printf "'%s'" .) -}}
{{- end -}}
{{- .root.Files.Get .file | replace "['system:serviceaccount:kube-system:node-controller', 'system:kube-controller-manager']" (printf "[%s]" (join ", " $users)) -}}
{{- end }}

{{/* Which flags say what runs. */}}
{{- define "yurt-coordinator.controllers" -}}
- --heartbeats={{ .Values.controllers.heartbeat }}
- --autonomy={{ .Values.controllers.autonomy }}
- --pool-cuts={{ .Values.controllers.poolcut }}
- --node-pools={{ .Values.controllers.nodepool }}
- --yurt-app-sets={{ .Values.controllers.yurtappset }}
- --yurt-coordinators={{ .Values.controllers.yurtcoordinator }}
- --pool-settings={{ .Values.controllers.poolsettings }}
- --signer={{ include "yurt-coordinator.signer" . }}
{{- end }}

{{/* A kind whose CRD is not installed here must be served by the cluster if a controller needs it: (dict "root" $ "crd" X "kind" X "who" X "needed" X). */}}
{{- define "yurt-coordinator.checkServed" -}}
{{- if and .needed (not (index .root.Values.crds .crd)) (not (.root.Capabilities.APIVersions.Has .kind)) -}}
{{- fail (printf "crds.%s is false, but this cluster does not serve %s, which %s: a controller would wait for it for ever. Set crds.%s to true, or see docs/from-openyurt.md; `helm template` takes --api-versions %s" .crd .kind .who .crd .kind) -}}
{{- end -}}
{{- end }}

{{- define "yurt-coordinator.checkKinds" -}}
{{- $c := .Values.controllers -}}
{{- if and $c.yurtcoordinator (not $c.yurtappset) -}}
{{- fail "controllers.yurtcoordinator needs controllers.yurtappset: another controller of YurtAppSets, such as OpenYurt's, knows no spec.rollout, and a change would reach all coordinators at once. Switch that one off, or see docs/from-openyurt.md" -}}
{{- end -}}
{{- include "yurt-coordinator.checkServed" (dict "root" . "crd" "nodepools" "kind" "apps.openyurt.io/v1beta2/NodePool" "who" "OpenYurt does from 1.7 on" "needed" (or $c.nodepool $c.poolcut $c.yurtappset $c.yurtcoordinator $c.poolsettings)) -}}
{{- include "yurt-coordinator.checkServed" (dict "root" . "crd" "yurtappsets" "kind" "apps.openyurt.io/v1beta1/YurtAppSet" "who" "OpenYurt does from 1.5 on" "needed" $c.yurtappset) -}}
{{- include "yurt-coordinator.checkServed" (dict "root" . "crd" "yurtcoordinators" "kind" "apps.openyurt.io/v1alpha1/YurtCoordinator" "who" "only this chart installs" "needed" $c.yurtcoordinator) -}}
{{- include "yurt-coordinator.checkServed" (dict "root" . "crd" "poolsettings" "kind" "apps.openyurt.io/v1alpha1/PoolSettings" "who" "only this chart installs" "needed" $c.poolsettings) -}}
{{- end }}
