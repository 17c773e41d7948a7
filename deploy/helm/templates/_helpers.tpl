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
