{{/* Labels of every object; of the pods, too. */}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ .Release.Name }}
{{- end }}

{{- define "podLabels" -}}
{{ include "labels" . }}
app.kubernetes.io/component: shadow
{{- end }}

{{/* Whether the mode changes jobs: "true" or nothing. */}}
{{- define "acts" -}}
{{- if has .Values.mode (list "canary" "active") }}true{{ end }}
{{- end }}

{{/* The account of the mode. */}}
{{- define "account" -}}
{{- if include "acts" . }}{{ .Release.Name }}-actor
{{- else if eq .Values.mode "advise" }}{{ .Release.Name }}-adviser
{{- else }}{{ .Release.Name }}-shadow
{{- end }}
{{- end }}

{{- define "image" -}}
{{ .repository }}@{{ .digest }}
{{- end }}

{{/* What every container may do: nothing of it. */}}
{{- define "containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The run's configuration, with what follows from the release. */}}
{{- define "config" -}}
{{- $name := .Release.Name }}
{{- $in := printf "%s.%s" $name .Release.Namespace }}
{{- $hosts := list $name $in (printf "%s.svc" $in) (printf "%s.svc.cluster.local" $in) }}
{{- $of := dict "serve" (dict "hosts" $hosts) }}
{{- if .Values.config.where.kubernetes }}
{{- $_ := set $of "where" (dict "kubernetes" (dict "lease_namespace" .Release.Namespace)) }}
{{- end }}
{{- toYaml (merge (deepCopy .Values.config) $of) }}
{{- end }}

{{/* The files of /etc/dsp-gym. */}}
{{- define "files" -}}
shadow.yaml: |
  {{- include "config" . | nindent 2 }}
{{- range $name, $text := .Values.jobs }}
{{ $name }}: |
  {{- $text | nindent 2 }}
{{- end }}
{{- end }}

{{/* The labels of a Flink job in PromQL and templates of alerts, under the names they are stored. */}}
{{- define "exported" -}}
{{- $text := .text | replace "$labels.namespace" "$labels.exported_namespace" }}
{{- $text = $text | replace "$labels.job" "$labels.exported_job" }}
{{- $text = $text | replace "(namespace, job" "(exported_namespace, exported_job" }}
{{- $text = $text | replace "{namespace=" "{exported_namespace=" }}
{{- $text = $text | replace ", job=" ", exported_job=" }}
{{- $text = $text | replace ", namespace)" ", exported_namespace)" }}
{{- $text = $text | replace ", job)" ", exported_job)" }}
{{- $text = $text | replace "by (job" "by (exported_job" }}
{{- $text | replace "{{job}}" "{{exported_job}}" }}
{{- end }}
