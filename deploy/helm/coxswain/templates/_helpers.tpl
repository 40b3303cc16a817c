{{/* Labels of everything. */}}
{{- define "coxswain.labels" -}}
app.kubernetes.io/name: coxswain
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What selects the manager's pods. */}}
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
{{- if not .Values.podCIDRs }}{{ fail "podCIDRs is required: set it to --cluster-cidr of kube-controller-manager, as a list, or to `none` if that runs without --allocate-node-cidrs; without it new nodes would get no podCIDR" }}{{ end -}}
{{- if ne (toString .Values.podCIDRs) "none" }}
- --allocate-node-cidrs=true
- {{ printf "--cluster-cidr=%s" (join "," .Values.podCIDRs) | quote }}
{{- end }}
{{- with .Values.serviceCIDRs }}
- {{ printf "--service-cluster-ip-range=%s" (join "," .) | quote }}
{{- end }}
{{- end }}

{{/* Leases, and what names them, are in kube-system. */}}
{{- define "coxswain.namespace" -}}
{{- if ne .Release.Namespace "kube-system" }}{{ fail "coxswain is installed in kube-system: helm install --namespace kube-system" }}{{ end -}}
kube-system
{{- end }}
