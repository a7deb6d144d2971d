{{/* The name of everything in this release. */}}
{{- define "oncebox.name" -}}
{{- if contains "oncebox" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-oncebox" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects this release's workers; never changes over its life. */}}
{{- define "oncebox.selector" -}}
app.kubernetes.io/name: oncebox
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: worker
{{- end -}}

{{- define "oncebox.labels" -}}
app.kubernetes.io/name: oncebox
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: oncebox
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "oncebox.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "oncebox.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "oncebox.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The only place that says how long a stop may take. */}}
{{- define "oncebox.graceSeconds" -}}
{{- add (int .Values.drain.seconds) (int .Values.drain.marginSeconds) -}}
{{- end -}}

{{/* Where the ledger is; all that `oncebox migrate` needs. Takes a dict: secret, key, root. */}}
{{- define "oncebox.databaseEnv" -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
- name: ONCEBOX_SCHEMA
  value: {{ .root.Values.database.schema | quote }}
{{- end -}}

{{/* Secrets of a worker, by reference. */}}
{{- define "oncebox.secretEnv" -}}
{{ include "oncebox.databaseEnv" (dict "secret" .Values.database.existingSecret "key" .Values.database.urlKey "root" .) }}
{{- with .Values.redis }}
{{- if .existingSecret }}
- name: REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .urlKey }}
{{- end }}
{{- end }}
{{- with .Values.kafka.sasl }}
{{- if .mechanism }}
- name: KAFKA_SASL_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .usernameKey }}
- name: KAFKA_SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .passwordKey }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Numbers in values are floats, and a large one would be written with an exponent. */}}
{{- define "oncebox.plain" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* What the ConfigMap holds: every setting that is no secret. */}}
{{- define "oncebox.settings" -}}
KAFKA_BOOTSTRAP_SERVERS: {{ .Values.kafka.bootstrapServers | quote }}
KAFKA_SECURITY_PROTOCOL: {{ .Values.kafka.securityProtocol | quote }}
{{- with .Values.kafka.sasl.mechanism }}
KAFKA_SASL_MECHANISM: {{ . | quote }}
{{- end }}
{{- with .Values.kafka.tls }}
{{- if .existingSecret }}
KAFKA_SSL_CA_LOCATION: {{ printf "/etc/oncebox/kafka/%s" .caKey | quote }}
{{- if .certificateKey }}
KAFKA_SSL_CERTIFICATE_LOCATION: {{ printf "/etc/oncebox/kafka/%s" .certificateKey | quote }}
KAFKA_SSL_KEY_LOCATION: {{ printf "/etc/oncebox/kafka/%s" .privateKeyKey | quote }}
{{- end }}
{{- end }}
{{- end }}
ONCEBOX_GROUP: {{ .Values.group | quote }}
ONCEBOX_HANDLERS: {{ join "," .Values.handlers | quote }}
ONCEBOX_DRAIN: {{ printf "%ds" (int .Values.drain.seconds) | quote }}
ONCEBOX_HTTP_HOST: "0.0.0.0"
ONCEBOX_HTTP_PORT: {{ .Values.http.port | quote }}
ONCEBOX_LOG_FORMAT: json
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ include "oncebox.plain" $value | quote }}
{{- end }}
{{- end -}}

{{- define "oncebox.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "oncebox.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Volumes of a pod that speaks to Kafka, and where they go. */}}
{{- define "oncebox.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with .Values.kafka.tls.existingSecret }}
- name: kafka-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "oncebox.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.kafka.tls.existingSecret }}
- name: kafka-tls
  mountPath: /etc/oncebox/kafka
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where pods may run. */}}
{{- define "oncebox.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
