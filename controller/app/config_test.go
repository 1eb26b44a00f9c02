package app

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"
)

func valid() Config {
	cfg := Defaults()
	cfg.Insecure = true
	return cfg
}

func TestValidate(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatalf("defaults and --insecure: %v", err)
	}
	for flag, change := range map[string]func(*Config){
		"--tls-cert-file: contradicts": func(c *Config) { c.Trust.CertFile, c.Trust.KeyFile, c.Trust.CAFile = "a", "b", "c" },
		"--tls-cert-file: goes with":   func(c *Config) { c.Insecure, c.Trust.CertFile = false, "a" },
		"--advertise-address":          func(c *Config) { c.Trust.AdvertiseAddress = ":7443" },
		"--advertise-apiservers":       func(c *Config) { c.Trust.APIServers = "192.0.2.1:6443, 192.0.2.2" },
		"--brake-share":                func(c *Config) { c.Brake.Share = 0 },
		"--brake-floor":                func(c *Config) { c.Brake.Floor = -1 },
		"--ca-lifetime":                func(c *Config) { c.Trust.CALifetime = time.Minute },
		"--ca-overlap":                 func(c *Config) { c.Trust.CAOverlap = -1 },
		"--agent-service-account":      func(c *Config) { c.Trust.AgentServiceAccount = "fairlead-agent" },
		"--directory-period":           func(c *Config) { c.Trust.DirectoryPeriod = time.Minute },
		"--insecure: contradicts":      func(c *Config) { c.Credentials = insecure.NewCredentials() },
		"--grpc-address":               func(c *Config) { c.GRPCAddress = "7443" },
		"--http-address":               func(c *Config) { c.HTTPAddress = ":seven" },
		`--http-address ":7443"`:       func(c *Config) { c.HTTPAddress = c.GRPCAddress },
		"--endpoints":                  func(c *Config) { c.Endpoints = "" },
		"--node-outage-share":          func(c *Config) { c.NodeOutageShare = 1.5 },
		"--max-endpoints-per-slice":    func(c *Config) { c.MaxEndpointsPerSlice = 1001 },
		"--publish-workers":            func(c *Config) { c.PublishWorkers = 0 },
		"--kube-api-qps":               func(c *Config) { c.KubeAPIQPS = -1 },
		"--kube-api-burst":             func(c *Config) { c.KubeAPIBurst = 0 },
		"--heartbeat-interval":         func(c *Config) { c.HeartbeatInterval = time.Millisecond },
		"--lease-namespace":            func(c *Config) { c.LeaseNamespace = "" },
		"--lease-name":                 func(c *Config) { c.LeaseName = "" },
		"--lease-duration":             func(c *Config) { c.LeaseDuration = c.LeaseRenew },
		"--lease-duration 900ms": func(c *Config) {
			c.LeaseDuration, c.LeaseRenew, c.LeaseRetry = 900*time.Millisecond, 100*time.Millisecond, 10*time.Millisecond
		},
		"--lease-renew": func(c *Config) { c.LeaseRetry = c.LeaseRenew },
		"--log-level":   func(c *Config) { c.LogLevel = "loud" },
		"--log-format":  func(c *Config) { c.LogFormat = "xml" },
	} {
		cfg := valid()
		change(&cfg)
		err := cfg.Validate()
		if err == nil || !strings.Contains(err.Error(), flag) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v", flag, err)
		}
	}
	cfg := valid()
	cfg.Endpoints, cfg.LogFormat = "x", "y"
	if err := cfg.Validate(); strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two mistakes: %v", err)
	}
	cfg = valid()
	cfg.GRPCAddress, cfg.HTTPAddress = "127.0.0.1:0", "127.0.0.1:0"
	if err := cfg.Validate(); err != nil {
		t.Errorf("free ports: %v", err)
	}
}
