{{- define "gpushare.labels" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels that select the pods of a component: (list "agent" .) */}}
{{- define "gpushare.selector" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/component: {{ first . }}
{{- end }}

{{- define "gpushare.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "gpushare.imageOptions" -}}
image: {{ include "gpushare.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "gpushare.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "gpushare.scheme" -}}
{{ ternary "https" "http" (ne .Values.scheduler.tls.existingSecret "") }}
{{- end }}

{{/* The DNS name of the headless Service. */}}
{{- define "gpushare.serviceName" -}}
{{- $domain := ternary (printf ".%s" .Values.clusterDomain) "" (ne .Values.clusterDomain "") -}}
gpushare-scheduler.{{ .Release.Namespace }}.svc{{ $domain }}
{{- end }}

{{/* All addresses of the scheduler: clients find the leader. */}}
{{- define "gpushare.schedulerUrl" -}}
{{- $scheme := include "gpushare.scheme" . -}}
{{- $urls := list -}}
{{- range $i := until (int .Values.scheduler.replicas) -}}
{{- $host := printf "gpushare-scheduler-%d.%s" $i (include "gpushare.serviceName" $) -}}
{{- $urls = append $urls (printf "%s://%s:8470" $scheme $host) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end }}

{{- define "gpushare.adminSecret" -}}
{{ .Values.scheduler.adminToken.existingSecret | default "gpushare-admin" }}
{{- end }}

{{/* Whether containers get real GPUs of the node. */}}
{{- define "gpushare.injection" -}}
{{ ternary "none" .Values.gpus.injection (ne .Values.agent.simulate "") }}
{{- end }}

{{/* Pods restart when what they read only at their start changes. */}}
{{- define "gpushare.configChecksum" -}}
{{ include (print .Template.BasePath "/scheduler-config.yaml") . | sha256sum }}
{{- end }}

{{/* Refuses values of the scheduler. Not in the schema: its message would not say what to set. */}}
{{- define "gpushare.checkDatabase" -}}
{{- $secret := "scheduler.database.existingSecret to the name of a Secret with its URL" -}}
{{- if and (eq .database.type "sqlite") (gt (int .replicas) 1) -}}
{{- $set := printf "set scheduler.database.type to postgresql, and %s" $secret -}}
{{- fail (printf "at '/scheduler/replicas': more than 1 requires PostgreSQL: %s" $set) -}}
{{- end -}}
{{- if and (eq .database.type "postgresql") (not .database.existingSecret) -}}
{{- fail (printf "at '/scheduler/database/existingSecret': required by PostgreSQL: set %s" $secret) -}}
{{- end -}}
{{- end }}
