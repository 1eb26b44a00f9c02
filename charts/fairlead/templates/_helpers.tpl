{{/* Names are fixed: a cluster has one Fairlead, and agents and controllers know each other by name. */}}

{{/* Labels of everything but selectors. Call with (dict "root" $ "name" NAME). */}}
{{- define "fairlead.labels" -}}
{{ include "fairlead.selector" .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: fairlead
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* What selects the Pods of a component. The controllers know the agents' Pods by this very label. */}}
{{- define "fairlead.selector" -}}
app.kubernetes.io/name: {{ . }}
{{- end }}

{{/* Image of a component. Call with (dict "root" $ "name" NAME). */}}
{{- define "fairlead.image" -}}
{{ .root.Values.image.repository }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* HOST:PORT with brackets around an IPv6 address. Call with (list HOST PORT). */}}
{{- define "fairlead.hostPort" -}}
{{- $host := index . 0 -}}
{{- if contains ":" $host -}}
[{{ trimAll "[]" $host }}]:{{ index . 1 }}
{{- else -}}
{{ $host }}:{{ index . 1 }}
{{- end -}}
{{- end }}

{{/* The API servers as a JSON list of HOST:PORT: given, or found in the cluster, where the chart may ask it. */}}
{{- define "fairlead.apiServers" -}}
{{- $found := list -}}
{{- if .Values.apiServer.addresses -}}
  {{- $found = .Values.apiServer.addresses -}}
{{- else if .Values.apiServer.host -}}
  {{- $found = list (include "fairlead.hostPort" (list .Values.apiServer.host (.Values.apiServer.port | int))) -}}
{{- else -}}
  {{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items -}}
    {{- if eq (index (.metadata.labels | default dict) "kubernetes.io/service-name" | default "") "kubernetes" -}}
      {{- $ports := .ports -}}
      {{- range .endpoints -}}
        {{- range $address := .addresses -}}
          {{- range $ports -}}
            {{- $found = append $found (include "fairlead.hostPort" (list $address (.port | int))) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if not $found -}}
  {{- fail "apiServer.addresses: the API servers' addresses cannot be found, since the chart is rendered without a cluster to ask; set apiServer.addresses to HOST:PORT of each, or apiServer.host and apiServer.port" -}}
{{- end -}}
{{ $found | uniq | sortAlpha | toJson }}
{{- end }}

{{/* Host and port that the controllers' API client uses, as JSON. */}}
{{- define "fairlead.apiServer" -}}
{{- if .Values.apiServer.host -}}
{{ dict "host" .Values.apiServer.host "port" (.Values.apiServer.port | int | toString) | toJson }}
{{- else -}}
{{- /* helm lint goes on where fail was called. */ -}}
{{- $first := first (append (include "fairlead.apiServers" . | fromJsonArray) ":0") -}}
{{- $port := regexFind "[0-9]+$" $first -}}
{{ dict "host" ($first | trimSuffix (printf ":%s" $port) | trimAll "[]") "port" $port | toJson }}
{{- end -}}
{{- end }}

{{/* Where the agents serve metrics. */}}
{{- define "fairlead.agentMetrics" -}}
{{- if .Values.agent.metricsBindAddress -}}
{{ .Values.agent.metricsBindAddress }}
{{- else if .Values.metrics.podMonitor.enabled -}}
0.0.0.0:10249
{{- else -}}
127.0.0.1:10249
{{- end -}}
{{- end }}

{{/* The port of an address IP:PORT. */}}
{{- define "fairlead.portOf" -}}
{{ regexFind "[0-9]+$" . }}
{{- end }}

{{/* What an agent's container may do. */}}
{{- define "fairlead.agentSecurity" -}}
# Only root may use capabilities without file capabilities; it has none but these two.
runAsUser: 0
privileged: false
{{- with .Values.agent.seLinuxOptions }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add:
  # Rules, sets, virtual servers, routes, conntrack entries and the sysctls below net.
  - NET_ADMIN
  # iptables in the legacy flavour speaks to the kernel through a raw socket.
  - NET_RAW
{{- end }}

{{/* Labels of the nodes for agents, or for their clean-up. Call with (dict "root" $ "proxy" WHO-FORWARDS-THERE). */}}
{{- define "fairlead.agentNodes" -}}
{{- $labels := deepCopy (.root.Values.agent.nodeSelector | default dict) -}}
{{- if .root.Values.migration.enabled -}}
{{- $_ := set $labels "fairlead.io/proxy" .proxy -}}
{{- end -}}
{{ toYaml $labels }}
{{- end }}

{{/* What of the node an agent needs beside netlink. */}}
{{- define "fairlead.agentVolumes" -}}
- name: xtables-lock
  hostPath: {path: /run/xtables.lock, type: FileOrCreate}
# A container's own /proc/sys is read-only. These are the parameters of the network alone.
- name: proc-sys-net
  hostPath: {path: /proc/sys/net, type: Directory}
- name: state
  hostPath: {path: {{ .Values.agent.stateDir }}, type: DirectoryOrCreate}
{{- end }}

{{/* Containers that take what agents made out of a node's kernel, and wait. Call with (dict "root" $ "args" MORE-ARGUMENTS). */}}
{{- define "fairlead.cleanup" -}}
{{- $image := include "fairlead.image" (dict "root" .root "name" "fairlead-agent") -}}
terminationGracePeriodSeconds: 0
initContainers:
- name: cleanup
  image: {{ $image }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
  - cleanup
  - --proc-sys=/host/proc/sys
  - --state-dir={{ .root.Values.agent.stateDir }}
  {{- range .args }}
  - {{ . }}
  {{- end }}
  securityContext: {{- include "fairlead.agentSecurity" .root | nindent 4 }}
  volumeMounts:
  - {name: xtables-lock, mountPath: /run/xtables.lock}
  - {name: proc-sys-net, mountPath: /host/proc/sys/net}
  - {name: state, mountPath: {{ .root.Values.agent.stateDir }}}
containers:
# A DaemonSet knows no Pods that end.
- name: done
  image: {{ $image }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [sleep, infinity]
  securityContext:
    runAsUser: 65534
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
{{- end }}

{{/* Where and as whom the controllers' Pods run, and the one of an uninstall, which works for as long as they do. */}}
{{- define "fairlead.controllerPod" -}}
# Neither a Pod network nor cluster DNS nor a cluster IP works before the agents do, which need a controller first.
hostNetwork: true
dnsPolicy: Default
enableServiceLinks: false
{{- with .Values.controller.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector: {{- toYaml .Values.controller.nodeSelector | nindent 2 }}
tolerations:
- {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
# A node may not get ready before its agent has met a controller. A kubelet that says so is alive, and so is the Pod.
- {key: node.kubernetes.io/not-ready, operator: Exists}
- {key: node.kubernetes.io/network-unavailable, operator: Exists, effect: NoSchedule}
- {key: node.cloudprovider.kubernetes.io/uninitialized, operator: Exists, effect: NoSchedule}
# A node that says nothing may be dead: another one takes over after a minute.
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoSchedule}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
{{- with .Values.controller.tolerations }}
{{- toYaml . | nindent 0 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Where the API client of such a Pod finds its server. */}}
{{- define "fairlead.apiServerEnv" -}}
{{- $api := include "fairlead.apiServer" . | fromJson -}}
# In place of the cluster IP that the kubelet would put here.
- {name: KUBERNETES_SERVICE_HOST, value: {{ $api.host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $api.port | quote }}}
{{- end }}
