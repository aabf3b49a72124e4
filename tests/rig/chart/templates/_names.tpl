{{- define "epp" }}{{ printf "%s-epp" (trunc 40 .Release.Name) }}{{ end }}

{{- define "labels" -}}
app.kubernetes.io/name: {{ template "epp" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
llm-d.ai/igw-mode: {{ .Values.router.inferencePool.create | ternary "gateway" "standalone" }}
{{- end }}

{{- define "selector" -}}
{{ .Values.router.inferencePool.create | ternary "llm-d-router-gateway" "llm-d-router-standalone" }}: {{ template "epp" . }}
{{- end }}

{{- /* A proxy of its own unless a gateway is in front. */}}
{{- define "proxied" }}{{ if and .Values.router.proxy.enabled (not .Values.httpRoute.create) }}yes{{ end }}{{ end }}
