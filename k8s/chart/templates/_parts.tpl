{{/* Parts of the specs that "isthmus.deployment" takes: lists of flags and of volumes. */}}

{{- define "isthmus.volume" }}
- name: {{ .name }}
  path: /etc/isthmus/{{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
{{- end }}

{{- define "isthmus.env.name" }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{- define "isthmus.args.end" }}
- --server-id=$(POD_NAME)
- --health-port=8092
# Longer than the readiness probe and kube-proxy need to send callers elsewhere.
- --shutdown-delay-duration={{ .Values.drain.delaySeconds }}s
- --graceful-shutdown-timeout={{ include "isthmus.duration" .Values.drain.timeoutSeconds }}
- --log-format=json
{{- if or .Values.tenants.configMap .Values.tenants.sync.enabled }}
- --tenants-dir=/etc/isthmus/tenants
{{- end }}
{{- if .Values.operators }}
- --admin-port=8095
- --admin-bind-address=
- --advertise-admin-address={{ include "isthmus.podAddress" . }}:8095
- --admin-server-cert=/etc/isthmus/admin/tls.crt
- --admin-server-key=/etc/isthmus/admin/tls.key
- --admin-ca-cert=/etc/isthmus/admin/ca.crt
{{- end }}
{{- end }}

{{- define "isthmus.podAddress" -}}
{{ ternary "[$(POD_IP)]" "$(POD_IP)" .Values.ipv6 }}
{{- end }}

{{/* Of pods in which operators run isthmus: what it shows. */}}
{{- define "isthmus.env.operator" }}
{{- if .Values.operators }}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: ISTHMUS_CA
  value: /etc/isthmus/operator/ca.crt
- name: ISTHMUS_CERT
  value: /etc/isthmus/operator/tls.crt
- name: ISTHMUS_KEY
  value: /etc/isthmus/operator/tls.key
{{- end }}
{{- end }}

{{- define "isthmus.ports.admin" }}
{{- if .Values.operators }}
- name: admin
  containerPort: 8095
{{- end }}
{{- end }}

{{- define "isthmus.volumes.admin" }}
{{- if .Values.operators }}
{{- include "isthmus.volume" (dict "name" "admin" "secret" .Values.secrets.admin) }}
{{- end }}
{{- end }}

{{- define "isthmus.volumes.operator" }}
{{- if .Values.operators }}
{{- include "isthmus.volume" (dict "name" "operator" "secret" .Values.secrets.operator) }}
{{- end }}
{{- end }}

{{- define "isthmus.args.peers" }}
- --peer-cert=/etc/isthmus/peers/tls.crt
- --peer-key=/etc/isthmus/peers/tls.key
- --peer-ca-cert=/etc/isthmus/peers/ca.crt
{{- end }}

{{- define "isthmus.args.callers" }}
- --server-port=8090
- --server-cert=/etc/isthmus/callers/tls.crt
- --server-key=/etc/isthmus/callers/tls.key
- --server-ca-cert=/etc/isthmus/callers/ca.crt
# A node's own agent first (agent.kind: DaemonSet), then any.
- --proxy-strategies=destHost,default
{{- end }}

{{- define "isthmus.args.agents" }}
- --agent-port=8091
- --cluster-cert=/etc/isthmus/agents/tls.crt
- --cluster-key=/etc/isthmus/agents/tls.key
{{- with .Values.agentTokens }}
{{- if .enabled }}
- --agent-namespace={{ .namespace }}
- --agent-service-account={{ .serviceAccount }}
- --authentication-audience={{ .audience }}
- --kubeconfig=/etc/isthmus/kubeconfig/config
{{- else }}
- --cluster-ca-cert=/etc/isthmus/agents/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{- define "isthmus.args.redis" }}
{{- $redis := .Values.redis }}
- --redis-url={{ $redis.url | default "redis://redis:6379" }}
# Read again for each connection, so a Secret that changes is used without a restart.
{{- range $flag, $key := dict "username" $redis.usernameKey "password" $redis.passwordKey "sentinel-username" $redis.sentinelUsernameKey "sentinel-password" $redis.sentinelPasswordKey }}
{{- with $key }}
- --redis-{{ $flag }}-file=/etc/isthmus/redis/{{ . }}
{{- end }}
{{- end }}
{{- if $redis.tlsSecret }}
- --redis-ca-cert=/etc/isthmus/redis-tls/ca.crt
{{- if $redis.clientCertificate }}
- --redis-cert=/etc/isthmus/redis-tls/tls.crt
- --redis-key=/etc/isthmus/redis-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "isthmus.volumes.redis" }}
{{- $redis := .Values.redis }}
{{- if or $redis.usernameKey $redis.passwordKey $redis.sentinelUsernameKey $redis.sentinelPasswordKey }}
{{- include "isthmus.volume" (dict "name" "redis" "secret" $redis.secret) }}
{{- end }}
{{- with $redis.tlsSecret }}
{{- include "isthmus.volume" (dict "name" "redis-tls" "secret" .) }}
{{- end }}
{{- end }}

{{/* One directory of files and credentials, so that files name credentials by their names alone. */}}
{{- define "isthmus.volumes.tenants" }}
{{- if .Values.tenants.configMap }}
- name: tenants
  path: /etc/isthmus/tenants
  projected:
    defaultMode: 0440
    sources:
      - configMap:
          name: {{ .Values.tenants.configMap }}
      {{- range .Values.tenants.secrets }}
      - secret:
          name: {{ . }}
      {{- end }}
{{- else if .Values.tenants.sync.enabled }}
- name: tenants
  path: /etc/isthmus/tenants
  # It holds private keys.
  emptyDir:
    medium: Memory
    sizeLimit: 128Mi
{{- end }}
{{- end }}

{{/* The sidecar that writes the tenants' directory: it starts before the program, and ends after it. It alone has a token for the API server. */}}
{{- define "isthmus.sync" }}
{{- $sync := .Values.tenants.sync }}
- name: tenants-sync
  image: {{ include "isthmus.image" . }}
  {{- with .Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  restartPolicy: Always
  command: [isthmus]
  args:
    - tenants
    - sync
    - --tenants-dir=/etc/isthmus/tenants
    {{- with $sync.from }}
    - --from={{ join "," . }}
    {{- end }}
    - --plane={{ $sync.plane }}
    {{- with $sync.namespace }}
    - --namespace={{ . }}
    {{- end }}
    - --agent-namespace={{ .Values.agentTokens.namespace }}
    - --agent-service-account={{ .Values.agentTokens.serviceAccount }}
    - --authentication-audience={{ .Values.agentTokens.audience }}
    - --status-namespace={{ .Release.Namespace }}
    {{- with $sync.proxy.url }}
    - --proxy-url={{ . }}
    {{- end }}
    {{- if $sync.proxy.caSecret }}
    - --proxy-ca-cert=/etc/isthmus/proxy-ca/{{ $sync.proxy.caKey }}
    {{- end }}
    {{- if .Values.operators }}
    - --member-ca-cert=/etc/isthmus/operator/ca.crt
    - --member-cert=/etc/isthmus/operator/tls.crt
    - --member-key=/etc/isthmus/operator/tls.key
    {{- end }}
    - --log-format=json
    {{- range $sync.extraArgs }}
    - {{ . }}
    {{- end }}
  ports:
    - name: sync-health
      containerPort: 8098
  startupProbe:
    httpGet:
      path: /readyz
      port: sync-health
    periodSeconds: 1
    failureThreshold: 600
  livenessProbe:
    httpGet:
      path: /healthz
      port: sync-health
    periodSeconds: 10
    timeoutSeconds: 5
  resources: {{- toYaml $sync.resources | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  volumeMounts:
    - name: tenants
      mountPath: /etc/isthmus/tenants
    - name: sync-token
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- if .Values.operators }}
    - name: operator
      mountPath: /etc/isthmus/operator
      readOnly: true
    {{- end }}
    {{- if $sync.proxy.caSecret }}
    - name: proxy-ca
      mountPath: /etc/isthmus/proxy-ca
      readOnly: true
    {{- end }}
{{- end }}

{{- define "isthmus.sync.token" }}
- name: sync-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
{{- with .Values.tenants.sync.proxy }}
{{- if .caSecret }}
- name: proxy-ca
  secret:
    secretName: {{ .caSecret }}
    items: [{key: {{ .caKey }}, path: {{ .caKey }}}]
{{- end }}
{{- end }}
{{- end }}

{{- define "isthmus.volumes.kubeconfig" }}
{{- if not .Values.agentTokens.enabled }}
{{- else if .Values.oneCluster }}
- name: kubeconfig
  path: /etc/isthmus/kubeconfig
  projected:
    defaultMode: 0440
    sources:
      - configMap:
          name: hub-kubeconfig
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
{{- else }}
{{- include "isthmus.volume" (dict "name" "kubeconfig" "secret" .Values.secrets.kubeconfig) }}
{{- end }}
{{- end }}
