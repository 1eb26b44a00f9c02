package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/agent/internal/bootstrap"
	"github.com/fairlead/fairlead/agent/internal/client"
)

// Trust is how controllers are found, what tells them from others, and how the agent shows whose it is.
type Trust struct {
	// APIServers are addresses host:port, where a ConfigMap, NAMESPACE/NAME, names the controllers and their CA.
	APIServers []string
	ConfigMap  string
	// APIServerTokenFile and APIServerCAFile are what a Pod has for API servers. LookupInterval is the mean time between two
	// requests of an agent that finds no controller.
	APIServerTokenFile, APIServerCAFile string
	LookupInterval                      time.Duration
	// TokenFile holds the token for controllers. CAFile, if set, holds their CA, which is then not looked up.
	TokenFile, CAFile string
}

func defaultTrust() Trust {
	return Trust{
		ConfigMap:          "fairlead-system/fairlead-controllers",
		APIServerTokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token",
		APIServerCAFile:    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
		LookupInterval:     75 * time.Second,
		TokenFile:          "/var/run/secrets/fairlead/token",
	}
}

func (t *Trust) bind(fs *pflag.FlagSet) {
	fs.Var(&words{&t.APIServers}, "apiservers", "`addresses` HOST:PORT of API servers, separated by commas: their own, not the cluster IP of Service kubernetes. They know where controllers are")
	fs.StringVar(&t.ConfigMap, "controllers-configmap", t.ConfigMap, "`namespace/name` of the ConfigMap in which controllers say where they are")
	fs.StringVar(&t.APIServerTokenFile, "apiserver-token-file", t.APIServerTokenFile, "`path` of the ServiceAccount token for API servers")
	fs.StringVar(&t.APIServerCAFile, "apiserver-ca-file", t.APIServerCAFile, "`path` of the API servers' CA certificates")
	fs.DurationVar(&t.LookupInterval, "lookup-interval", t.LookupInterval, "mean time between two requests to API servers while no controller is found; a thousand agents make a thousand in that time")
	fs.StringVar(&t.TokenFile, "token-file", t.TokenFile, "`path` of the ServiceAccount token for controllers, of audience fairlead-controller")
	fs.StringVar(&t.CAFile, "controller-ca-file", t.CAFile, "`path` of the controllers' CA certificates, read at each connection; without it they are looked up at --apiservers")
}

// validateTrust reports everything that is wrong with how controllers are found and trusted.
func (c Config) validateTrust() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	t := c.Trust
	check(len(c.Controllers)+len(t.APIServers) > 0, "--controller: is missing, and so is --apiservers; name controllers, or API servers that know them, as HOST:PORT")
	for _, list := range []struct {
		flag      string
		addresses []string
	}{{"--controller", c.Controllers}, {"--apiservers", t.APIServers}} {
		for _, address := range list.addresses {
			err := bootstrap.CheckAddress(address)
			check(err == nil, "%s %w", list.flag, err)
		}
	}
	for _, address := range t.APIServers {
		host, _, err := net.SplitHostPort(address)
		check(err != nil || host != os.Getenv("KUBERNETES_SERVICE_HOST"),
			"--apiservers %q: is the cluster IP of Service kubernetes, which works only after this agent; give an address of an API server itself", address)
	}
	check(regexp.MustCompile(`^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*$`).MatchString(t.ConfigMap), "--controllers-configmap %q: want NAMESPACE/NAME", t.ConfigMap)
	check(t.LookupInterval >= time.Second, "--lookup-interval %v: want 1s or more", t.LookupInterval)
	check(c.Insecure || c.Credentials != nil || t.CAFile != "" || len(t.APIServers) > 0,
		"--controller-ca-file: is missing: give it, or --apiservers that know the CA, or --insecure to say that the network is trusted")
	check(!c.Insecure || c.Credentials == nil, "--insecure: contradicts TLS credentials; leave one of them out")
	check(!c.Insecure || t.CAFile == "", "--controller-ca-file: contradicts --insecure; leave one of them out")
	return errors.Join(errs...)
}

// way is how an agent gets to a controller.
type way struct {
	directory   client.Directory
	credentials func() (credentials.TransportCredentials, error)
	perCall     credentials.PerRPCCredentials
	// run keeps the directory up to date until ctx ends.
	run func(ctx context.Context)
}

func (a agent) findWay() way {
	cfg, t := a.cfg, a.cfg.Trust
	w := way{directory: client.Fixed(cfg.Controllers), perCall: cfg.PerCall, run: func(context.Context) {}}
	roots := func() (*x509.CertPool, error) { return readBundle(t.CAFile) }
	isOurs := cfg.Credentials == nil && !cfg.Insecure
	needsBundle := isOurs && t.CAFile == ""
	if needsBundle || len(cfg.Controllers) == 0 {
		namespace, name, _ := strings.Cut(t.ConfigMap, "/")
		directory := bootstrap.New(bootstrap.Config{
			Controllers: cfg.Controllers, APIServers: t.APIServers, NeedsBundle: needsBundle, Interval: t.LookupInterval, Dir: cfg.StateDir,
			Lookup:  bootstrap.Lookup{Namespace: namespace, Name: name, TokenFile: t.APIServerTokenFile, CAFile: t.APIServerCAFile},
			Metrics: bootstrap.NewMetrics(a.metrics.registry), Logger: cfg.Logger,
		})
		w.directory, w.run = directory, directory.Run
		if needsBundle {
			roots = directory.Roots
		}
	}
	switch {
	case cfg.Insecure:
		w.credentials = unchanging(insecure.NewCredentials())
	case !isOurs:
		w.credentials = unchanging(cfg.Credentials)
	default:
		w.credentials = client.TLS(roots)
		if w.perCall == nil {
			w.perCall = bootstrap.Token{File: t.TokenFile}
		}
	}
	return w
}

func unchanging(c credentials.TransportCredentials) func() (credentials.TransportCredentials, error) {
	return func() (credentials.TransportCredentials, error) { return c, nil }
}

func readBundle(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("--controller-ca-file: %w", err)
	}
	pool, err := bootstrap.ParseBundle(text)
	if err != nil {
		return nil, fmt.Errorf("--controller-ca-file %s: %w", path, err)
	}
	return pool, nil
}
