{{/* Labels of all objects. */}}
{{- define "coxswain.labels" -}}
app.kubernetes.io/name: coxswain
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels that select the manager's pods. */}}
{{- define "coxswain.selector" -}}
app.kubernetes.io/name: coxswain
app.kubernetes.io/component: controller-manager
{{- end }}

{{- define "coxswain.image" -}}
{{- if not (contains "/" .Values.image.repository) }}{{ fail "image.repository is required, with its registry: no image is published; build it with `make image` and push it to your registry" }}{{ end -}}
{{- if and (not .Values.keysSecret) (has "*" (splitList "," .Values.controllers)) }}{{ fail "keysSecret is required if `controllers` has a `*`, because that includes controllers that sign and publish; set keysSecret, or name the controllers" }}{{ end -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}{{ if not (hasPrefix "@" $tag) }}:{{ end }}{{ $tag }}
{{- end }}

{{/* The flags for the CIDRs of pods and Services. */}}
{{- define "coxswain.cidrs" -}}
{{- if not .Values.podCIDRs }}{{ fail "podCIDRs is required, because new nodes would get no podCIDR otherwise: set it to the value of --cluster-cidr of kube-controller-manager, as a list, or to `none` if kube-controller-manager runs without --allocate-node-cidrs=true" }}{{ end -}}
{{- if ne (toString .Values.podCIDRs) "none" }}
- --allocate-node-cidrs=true
- {{ printf "--cluster-cidr=%s" (join "," .Values.podCIDRs) | quote }}
{{- end }}
{{- with .Values.serviceCIDRs }}
- {{ printf "--service-cluster-ip-range=%s" (join "," .) | quote }}
{{- end }}
{{- end }}

{{/* Leases, and the objects that name them, are in kube-system. */}}
{{- define "coxswain.namespace" -}}
{{- if ne .Release.Namespace "kube-system" }}{{ fail "coxswain must be installed in kube-system: use helm install --namespace kube-system" }}{{ end -}}
kube-system
{{- end }}
