{{/* A NetworkPolicy for a program's pods. Takes root, name, program, ingress and egress (YAML of lists). */}}
{{- define "isthmus.policy" }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "isthmus.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .program }}
  policyTypes: [Ingress, Egress]
  ingress: {{- .ingress | nindent 4 }}
  {{- with .egress }}
  egress: {{- . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "isthmus.policy.ports" -}}
ports:
  {{- range . }}
  - protocol: TCP
    port: {{ . }}
  {{- end }}
{{- end }}

{{- define "isthmus.policy.scrape" }}
- from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .root.Values.networkPolicies.monitoringNamespace }}
  {{- include "isthmus.policy.ports" (list .port) | nindent 2 }}
{{- end }}

{{- define "isthmus.policy.redis" }}
{{- if .Values.redis.url }}
- {{- include "isthmus.policy.ports" .Values.redis.ports | nindent 2 }}
{{- else }}
- to:
    - podSelector:
        matchLabels:
          app.kubernetes.io/name: redis
  {{- include "isthmus.policy.ports" (list 6379) | nindent 2 }}
{{- end }}
{{- end }}

{{/*
The agents' API server, for TokenReview. No selector matches it; 443 is its Service, 6443 is where that leads, and the API server of a
hosted control plane may be behind a NodePort.
*/}}
{{- define "isthmus.policy.api" }}
- {{- include "isthmus.policy.ports" (list 443 6443) | nindent 2 }}
    - protocol: TCP
      port: 30000
      endPort: 32767
{{- end }}
