{{/* Labels of every object. Selectors use only app.kubernetes.io/name, as in k8s/base, because nobody can change a selector later. */}}
{{- define "isthmus.labels" -}}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Programs of this release: Deployment, and the label of its pods. */}}
{{- define "isthmus.programs" -}}
{{- if eq .Values.component "plane" }}
gateway: frontend-gw
hub: backend-hub
{{- else if eq .Values.component "server" }}
server: proxy-server
{{- else }}
agent: proxy-agent
{{- end }}
{{- end }}

{{- define "isthmus.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* A number of seconds as a duration of flags: whole minutes as minutes. */}}
{{- define "isthmus.duration" -}}
{{- $seconds := int . -}}
{{ if and (gt $seconds 0) (eq (mod $seconds 60) 0) }}{{ div $seconds 60 }}m{{ else }}{{ $seconds }}s{{ end }}
{{- end }}

{{/* Takes root, name, and the Service's settings; the ports follow. */}}
{{- define "isthmus.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "isthmus.labels" .root | nindent 4 }}
  {{- with .service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if ne .service.type "ClusterIP" }}
  type: {{ .service.type }}
  {{- end }}
  {{- with .service.loadBalancerSourceRanges }}
  loadBalancerSourceRanges: {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    app.kubernetes.io/name: {{ .program }}
  ports:
    - name: {{ .port.name }}
      port: {{ .port.number }}
      targetPort: {{ .port.name }}
{{- with .service.tlsRoute }}
{{- if .hostnames }}
{{- if not .parentRefs }}
{{- fail (printf "tlsRoute.hostnames of the Service %s is set without tlsRoute.parentRefs: name the Gateway" $.name) }}
{{- end }}
---
# TLS is passed on as it comes: a Gateway looks at the server name alone.
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata:
  name: {{ $.name }}
  namespace: {{ $.root.Release.Namespace }}
  labels: {{- include "isthmus.labels" $.root | nindent 4 }}
spec:
  parentRefs: {{- toYaml .parentRefs | nindent 4 }}
  hostnames: {{- toYaml .hostnames | nindent 4 }}
  rules:
    - backendRefs:
        - name: {{ $.name }}
          port: {{ $.port.number }}
{{- end }}
{{- end }}
{{- end }}
