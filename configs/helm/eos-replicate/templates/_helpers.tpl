{{- define "eos.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "eos.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "eos.labels" -}}
{{ include "eos.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "eos.metrics" -}}
{{- if .Values.metrics.tokenSecret.name -}}
listen: 0.0.0.0:{{ .Values.metrics.port }}
token: ${EOS_METRICS_TOKEN}
{{- else -}}
listen: 127.0.0.1:{{ .Values.metrics.port }}
{{- end -}}
{{- end -}}
