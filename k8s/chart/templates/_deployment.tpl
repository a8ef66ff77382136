{{/*
A Deployment. Takes root and spec: name, program, args, env, ports, volumes (each with the path where it is mounted), grace in seconds.
With kind: DaemonSet, a pod on each node. With token: true, pods get a token for the API server.
*/}}
{{- define "isthmus.deployment" -}}
{{- $root := .root }}
{{- $spec := .spec }}
{{- $values := index $root.Values $spec.name }}
{{- $sizing := include "isthmus.sizing" (dict "root" $root "name" $spec.name) | fromYaml }}
{{- $everywhere := eq ($spec.kind | default "Deployment") "DaemonSet" }}
apiVersion: apps/v1
kind: {{ ternary "DaemonSet" "Deployment" $everywhere }}
metadata:
  name: {{ $spec.name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "isthmus.labels" $root | nindent 4 }}
spec:
  {{- if not (or $everywhere ($values.autoscaling | default dict).enabled) }}
  replicas: {{ $sizing.replicas }}
  {{- end }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ $spec.program }}
  {{ ternary "updateStrategy" "strategy" $everywhere }}:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $spec.program }}
      {{- with $values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $spec.name }}
      automountServiceAccountToken: {{ $spec.token | default false }}
      enableServiceLinks: false
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      # The image is for Linux.
      nodeSelector: {{- merge (dict) ($values.nodeSelector | default dict) (dict "kubernetes.io/os" "linux") | toYaml | nindent 8 }}
      {{- range $field := list "priorityClassName" "tolerations" "affinity" }}
      {{- with index $values $field }}
      {{ $field }}: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- if and $everywhere (not $values.tolerations) }}
      tolerations:
        - operator: Exists
      {{- end }}
      terminationGracePeriodSeconds: {{ $spec.grace }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      {{- if not $everywhere }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: {{ $values.zoneSpread }}
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ $spec.program }}
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ $spec.program }}
      {{- end }}
      {{- $syncs := and $root.Values.tenants.sync.enabled (ne $spec.program "proxy-agent") }}
      {{- if $syncs }}
      initContainers:
        {{- include "isthmus.sync" $root | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ $spec.program }}
          image: {{ include "isthmus.image" $root }}
          {{- with $root.Values.image.pullPolicy }}
          imagePullPolicy: {{ . }}
          {{- end }}
          command: [{{ $spec.program }}]
          args: {{- toYaml (concat $spec.args $values.extraArgs) | nindent 12 }}
          {{- with $spec.env }}
          env: {{- toYaml . | nindent 12 }}
          {{- end }}
          ports: {{- toYaml $spec.ports | nindent 12 }}
          startupProbe:
            httpGet:
              path: /healthz
              port: health
            periodSeconds: 1
            failureThreshold: 60
          livenessProbe:
            httpGet:
              path: /healthz
              port: health
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet:
              path: {{ $spec.ready | default "/readyz" }}
              port: health
            periodSeconds: 2
            timeoutSeconds: 2
          resources: {{- toYaml (mergeOverwrite $sizing.resources $values.resources) | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            {{- range $spec.volumes }}
            - name: {{ .name }}
              mountPath: {{ .path }}
              readOnly: true
            {{- end }}
            - name: tmp
              mountPath: /tmp
      volumes:
        {{- range $spec.volumes }}
        - {{- toYaml (omit . "path") | nindent 10 }}
        {{- end }}
        {{- if $syncs }}
        {{- include "isthmus.sync.token" $root | nindent 8 }}
        {{- if and $root.Values.operators (eq $spec.program "backend-hub") }}
        # For the sidecar alone: gateways have it for operators too.
        - name: operator
          secret:
            secretName: {{ $root.Values.secrets.operator }}
            defaultMode: 0440
        {{- end }}
        {{- end }}
        # For the admin RPC's unix socket: the root is read-only.
        - name: tmp
          emptyDir:
            medium: Memory
            sizeLimit: 1Mi
{{- end }}
