package bootstrap

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/internal/statedir"
)

// Known is what a Directory has learned. Lists are sorted and without duplicates.
type Known struct {
	// Controllers and APIServers are addresses host:port.
	Controllers []string `json:"controllers,omitempty"`
	APIServers  []string `json:"apiservers,omitempty"`
	// Bundle are the CA certificates of the controllers, PEM; two during a rotation.
	Bundle string `json:"bundle,omitempty"`
}

// maxAddresses bounds a list of addresses.
const maxAddresses = 256

// CheckAddress refuses what can never be reached from where an agent starts: names of the cluster's DNS first of all, since
// that DNS is behind virtual IPs that nobody programs before this agent has reached a controller.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.ContainsAny(address, " \t\r\n/@?#") {
		return fmt.Errorf("%q: want HOST:PORT", address)
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return fmt.Errorf("%q: %q is no port", address, port)
	}
	dotted := strings.ToLower(strings.TrimSuffix(host, ".")) + "."
	if strings.HasSuffix(dotted, ".svc.") || strings.HasSuffix(dotted, ".cluster.local.") || strings.Contains(dotted, ".svc.cluster.") {
		return fmt.Errorf("%q: is a name of the cluster's DNS, which works only after this agent; give an address, or a name that the node itself resolves", address)
	}
	return nil
}

// addresses returns the good ones of a list, sorted, and says what is wrong with the others.
func addresses(list []string) ([]string, error) {
	var good []string
	var errs []error
	for _, address := range list {
		switch err := CheckAddress(address); {
		case err != nil:
			errs = append(errs, err)
		case len(good) < maxAddresses:
			good = append(good, address)
		}
	}
	slices.Sort(good)
	return slices.Compact(good), errors.Join(errs...)
}

// Pool reads the bundle.
func (k Known) Pool() (*x509.CertPool, error) {
	if k.Bundle == "" {
		return nil, errors.New("no CA bundle of the controllers is known yet")
	}
	return ParseBundle([]byte(k.Bundle))
}

// ParseBundle reads CA certificates in PEM; there must be at least one, and nothing else.
func ParseBundle(text []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("CA bundle: holds a %s: want certificates alone", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("CA bundle: certificate %d: %w", n+1, err)
		}
		pool.AddCert(certificate)
		n++
	}
	if n == 0 {
		return nil, errors.New("CA bundle: holds no certificate")
	}
	return pool, nil
}

// Keys of the ConfigMap.
const (
	keyBundle      = "ca.crt"
	keyControllers = "controllers"
	keyAPIServers  = "apiservers"
)

// parseConfigMap reads an object as the API server sends it. Known has what is good in it; the error, which may come besides,
// says what is not.
func parseConfigMap(body []byte) (Known, error) {
	var object struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return Known{}, fmt.Errorf("answer of the API server: %w", err)
	}
	if object.Kind != "ConfigMap" {
		return Known{}, fmt.Errorf("answer of the API server: kind %q: want ConfigMap", object.Kind)
	}
	var k Known
	var errs []error
	for _, list := range []struct {
		key string
		to  *[]string
	}{{keyControllers, &k.Controllers}, {keyAPIServers, &k.APIServers}} {
		var err error
		if *list.to, err = addresses(strings.Fields(object.Data[list.key])); err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap, %s: %w", list.key, err))
		}
	}
	if bundle := object.Data[keyBundle]; bundle != "" {
		if _, err := ParseBundle([]byte(bundle)); err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap, %s: %w", keyBundle, err))
		} else {
			k.Bundle = bundle
		}
	}
	if len(k.Controllers) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("ConfigMap, %s: names none", keyControllers))
	}
	return k, errors.Join(errs...)
}

// with returns k with what newer has: a field that is empty there stays.
func (k Known) with(newer Known) Known {
	if len(newer.Controllers) > 0 {
		k.Controllers = newer.Controllers
	}
	if len(newer.APIServers) > 0 {
		k.APIServers = newer.APIServers
	}
	if newer.Bundle != "" {
		k.Bundle = newer.Bundle
	}
	return k
}

func (k Known) equal(o Known) bool {
	return slices.Equal(k.Controllers, o.Controllers) && slices.Equal(k.APIServers, o.APIServers) && k.Bundle == o.Bundle
}

// fileName is where the state folder has what was last known; maxBytes bounds what is read.
const (
	fileName = "bootstrap.json"
	maxBytes = 4 << 20
)

// load reads what an earlier agent saved. The error wraps os.ErrNotExist where there is nothing.
func load(dir string) (Known, error) {
	content, err := statedir.Read(dir, fileName, maxBytes)
	if err != nil {
		return Known{}, err //nolint:wrapcheck // it names the file itself
	}
	var k Known
	if err := json.Unmarshal(content, &k); err != nil {
		return Known{}, fmt.Errorf("read %s/%s: %w", dir, fileName, err)
	}
	var errs []error
	for _, list := range []*[]string{&k.Controllers, &k.APIServers} {
		good, err := addresses(*list)
		*list, errs = good, append(errs, err)
	}
	if k.Bundle != "" {
		_, err := ParseBundle([]byte(k.Bundle))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return Known{}, fmt.Errorf("read %s/%s: %w", dir, fileName, err)
	}
	return k, nil
}

func (k Known) save(dir string) error {
	content, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	return statedir.Write(dir, fileName, func(w io.Writer) error { //nolint:wrapcheck // it names the file itself
		_, err := io.Copy(w, bytes.NewReader(append(content, '\n')))
		return err
	})
}

// Forget removes what is known of the controllers from a folder: those of a later installation have another CA. None is no
// error.
func Forget(dir string) error {
	if err := statedir.Remove(dir, fileName); err != nil {
		return fmt.Errorf("forget controllers: %w", err)
	}
	return nil
}
