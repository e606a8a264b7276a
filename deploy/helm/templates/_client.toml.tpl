{{- define "millrace.client.toml" -}}
[tunnel]
servers = {{ toJson .servers }}
server_name = {{ toJson .values.serverName }}
ca = "/certificates/ca.pem"
certificate = "/certificates/edge.pem"
private_key = "/certificates/edge.key"
congestion_control = {{ toJson .values.congestionControl }}
# Nothing intercepts in a pod that the tunnel's own packets would have to be kept out of.
mark = 0
{{ range .values.listeners }}
[[listen]]
mode = {{ toJson .mode }}
address = "0.0.0.0:{{ .port }}"
{{- with .destination }}
destination = {{ toJson . }}
{{- end }}
{{- with .class }}
class = {{ toJson . }}
{{- end }}
{{ end }}
{{ include "millrace.admin" (dict "name" .name "port" 9464) }}
{{- end -}}
