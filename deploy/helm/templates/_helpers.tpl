{{/* Name of the objects of a component: (dict "root" $ "component" "server"). */}}
{{- define "millrace.name" -}}
{{- $release := .root.Release.Name -}}
{{- $base := ternary $release (printf "%s-millrace" $release) (contains "millrace" $release) -}}
{{- printf "%s-%s" ($base | trunc 35 | trimSuffix "-") .component -}}
{{- end -}}

{{/* Labels by which a component's pods are selected. */}}
{{- define "millrace.selector" -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end -}}

{{/* Labels of a component's objects. */}}
{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | quote }}
{{- end -}}

{{/* What the pods of both components have: (dict "root" $ "values" VALUES). */}}
{{- define "millrace.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
# Running flows may go on for drain_timeout_s, 30 s.
terminationGracePeriodSeconds: 40
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* What the containers of both components have. */}}
{{- define "millrace.container" -}}
image: {{ printf "%s:%s" .values.image.repository (.values.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .values.image.pullPolicy }}
args: [run]
startupProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 1
  failureThreshold: 30
readinessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
# A path on which nothing moves is no reason to restart: /livez says whether the process works.
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
resources: {{ toJson .values.resources }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* [admin]: (dict "name" NAME "port" PORT). Probes come from the node, and need no token. */}}
{{- define "millrace.admin" -}}
[admin]
address = "0.0.0.0:{{ .port }}"
allow_remote = true
allowed_hosts = [{{ toJson .name }}]
token_file = "/admin/token"

[log]
format = "json"
{{- end -}}

{{/* The rule of a network policy that keeps the admin listener to Prometheus: (dict "root" $ "port" PORT). */}}
{{- define "millrace.monitoring" -}}
# /metrics and /flows show which viewers watch what.
- from:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ .root.Values.monitoringNamespace | quote }}}
  ports:
    - {port: {{ .port }}, protocol: TCP}
{{- end -}}

{{/* Name of a listener's port. */}}
{{- define "millrace.port" -}}
{{- printf "%s-%v" (ternary "udp" "tcp" (eq .mode "udp")) .port -}}
{{- end -}}
