// Package healthcheck answers those who ask over HTTP whether this node forwards: load balancers that ask for one Service
// (Services, one server per healthCheckNodePort), and whoever asks for the agent as a whole (Health, /healthz and /livez).
//
// Input are tables of package fwd and what the loop in internal/proxy tells of its work; output are HTTP answers with the
// bodies, headers and codes of kube-proxy 1.36, so that load balancers and dashboards go on working. agent/app serves
// Health's handlers on the agent's own port.
package healthcheck
