{{/*
Replicas and memory of a program, from `sizing`. Takes root and name. Measured (docs/TENANTS.md, docs/LIMITS.md, docs/PERFORMANCE.md, k8s/base):
- a gateway or hub takes 27 to 31 MiB of its own after start and an agent 29. With Node's program, which is charged to the first container
  of a node that reads it, both take 80, and with the spare of busy tunnels 162 MiB and 106 MiB
- a session takes 110 KiB at its hub and 4.9 KiB at each gateway; a cluster 32 KiB at each of both
- a tunnel takes 37 KB while idle, and at most 1 MiB (its window) if its reader stalls: requests count the first, limits the second
- a hub spends a quarter of a processor on 6,000 sessions at rest
Each program has one process more than it needs, so that the others can carry everything while one restarts.
*/}}
{{- define "isthmus.sizing" -}}
{{- $sizing := .root.Values.sizing }}
{{- $tunnels := max (int $sizing.tunnels) (mul 3 (int $sizing.nodes)) }}
{{- $clusters := int $sizing.clusters }}
{{- $sessions := mul 2 (max (int $sizing.agents) (mul 2 $clusters)) }}
{{- $byTunnels := div (add $tunnels 999) 1000 }}
{{- $bySessions := div (add $sessions 5999) 6000 }}
{{- $isHub := has .name (list "hub" "server") }}
{{- $needed := max 1 $byTunnels }}
{{- if $isHub }}{{ $needed = max $needed $bySessions }}{{ end }}
{{- if eq .name "agent" }}{{ $needed = max 1 (div (add $tunnels 499) 500) }}{{ end }}
{{- $replicas := add 1 $needed }}
{{- if eq .name "server" }}{{ $replicas = 1 }}{{ end }}
{{- with (index .root.Values .name).replicas }}{{ $replicas = int . }}{{ end }}
{{- $carrying := max 1 (sub $replicas 1) }}
{{- $tunnelsEach := div (add $tunnels (sub $carrying 1)) $carrying }}
{{- $kib := 0 }}
{{- if eq .name "gateway" }}{{ $kib = add (div (mul 49 $sessions) 10) (mul 32 $clusters) }}{{ end }}
{{- if $isHub }}{{ $kib = add (div (mul 110 $sessions) $carrying) (mul 32 $clusters) }}{{ end }}
{{- $request := max 128 (add 80 (div (add $kib (mul 37 $tunnelsEach) 1023) 1024)) }}
{{- $start := 162 }}
{{- $least := 512 }}
{{- if eq .name "agent" }}{{ $start = 106 }}{{ $least = 256 }}{{ end }}
{{- $limit := max $least (add $start (div $kib 1024) $tunnelsEach) }}
{{- $cpu := 100 }}
{{- if $isHub }}{{ $cpu = add 100 (div (mul 40 (div $sessions $carrying)) 1000) }}{{ end }}
{{- if eq .name "agent" }}{{ $cpu = 50 }}{{ end }}
replicas: {{ $replicas }}
resources:
  requests:
    cpu: {{ $cpu }}m
    memory: {{ $request }}Mi
  limits:
    memory: {{ $limit }}Mi
{{- end }}
