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
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}{{ if not (hasPrefix "@" $tag) }}:{{ end }}{{ $tag }}
{{- end }}

{{/* Leases, and what names them, are in kube-system. */}}
{{- define "coxswain.namespace" -}}
{{- if ne .Release.Namespace "kube-system" }}{{ fail "coxswain is installed in kube-system: helm install --namespace kube-system" }}{{ end -}}
kube-system
{{- end }}
