{{/* What the servers and the Job that prepares the keyspace or the schema have in common. */}}
{{- define "tablestone.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}

{{- define "tablestone.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10002
runAsGroup: 10002
fsGroup: 10002
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "tablestone.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{- define "tablestone.engineVariables" -}}
- name: TABLESTONE_ENGINE
  {{- if .Values.engine.secretName }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.engine.secretName }}
      key: {{ .Values.engine.secretKey }}
  {{- else }}
  value: sqlite:/data
  {{- end }}
{{- if .Values.engine.passwordSecretName }}
- name: {{ ternary "PGPASSWORD" "CASSANDRA_PASSWORD" (eq .Values.engine.kind "postgresql") }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.engine.passwordSecretName }}
      key: {{ .Values.engine.passwordSecretKey }}
{{- end }}
{{- end -}}

{{- define "tablestone.engineMounts" -}}
{{- if .Values.engine.tlsSecretName -}}
- name: engine-tls
  mountPath: /engine-tls
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "tablestone.engineVolumes" -}}
{{- if .Values.engine.tlsSecretName -}}
- name: engine-tls
  secret:
    secretName: {{ .Values.engine.tlsSecretName }}
    defaultMode: 0440
{{- end -}}
{{- end -}}
