{{- define "millrace.server.toml" -}}
[tunnel]
listen = ["0.0.0.0:4433"]
client_ca = "/certificates/ca.pem"
certificate = "/certificates/server.pem"
private_key = "/certificates/server.key"
state_dir = "/var/lib/millrace-server"
congestion_control = {{ toJson .values.congestionControl }}
{{ range .values.destinations }}
[[destinations.allow]]
{{- if .name }}
name = {{ toJson .name }}
{{- else }}
network = {{ toJson .network }}
{{- end }}
{{- with .protocol }}
protocol = {{ toJson . }}
{{- end }}
ports = {{ toJson .ports }}
{{ end }}
{{ include "millrace.admin" (dict "name" (include "millrace.name" .) "port" 9465) }}
{{- end -}}
