package bootstrap

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

// Lookup is how the API server is asked for the ConfigMap. All fields are required.
type Lookup struct {
	// Namespace and Name of the ConfigMap.
	Namespace, Name string
	// TokenFile holds the ServiceAccount token to present, CAFile the CA certificates of the API servers. Both are read
	// for each request, since kubelets replace them.
	TokenFile, CAFile string
}

// Bounds of one request.
const (
	lookupTimeout = 5 * time.Second
	// maxAnswer is more than the 1 MiB that an object can have.
	maxAnswer = 4 << 20
)

// errAnswered marks a refusal by an API server: others would say the same.
var errAnswered = errors.New("the API server refuses")

// errBusy marks a refusal of one that has too much to do.
var errBusy = fmt.Errorf("%w: it is busy", errAnswered)

// get asks one API server. Known may come besides an error, see parseConfigMap.
func (l Lookup) get(ctx context.Context, address string) (Known, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	request, err := l.request(ctx, address)
	if err != nil {
		return Known{}, err
	}
	bundle, err := os.ReadFile(l.CAFile)
	if err != nil {
		return Known{}, fmt.Errorf("--apiserver-ca-file: %w", err)
	}
	roots, err := ParseBundle(bundle)
	if err != nil {
		return Known{}, fmt.Errorf("--apiserver-ca-file %s: %w", l.CAFile, err)
	}
	client := http.Client{
		// Without a proxy from the environment: requests go the host's own way.
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return Known{}, fmt.Errorf("ask the API server: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return Known{}, fmt.Errorf("read the answer of the API server %s: %w", address, err)
	case response.StatusCode != http.StatusOK:
		return Known{}, l.refusal(address, response.StatusCode)
	case len(body) > maxAnswer:
		return Known{}, fmt.Errorf("%w %s: its answer has more than %d bytes", errAnswered, address, maxAnswer)
	}
	return parseConfigMap(body)
}

func (l Lookup) request(ctx context.Context, address string) (*http.Request, error) {
	token, err := readToken(l.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--apiserver-token-file: %w", err)
	}
	where := url.URL{Scheme: "https", Host: address, Path: "/api/v1/namespaces/" + l.Namespace + "/configmaps/" + l.Name}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask the API server: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "fairlead-agent")
	return request, nil
}

// refusal says what an answer other than 200 asks of whoever runs the cluster.
func (l Lookup) refusal(address string, code int) error {
	name := l.Namespace + "/" + l.Name
	why := "answers " + http.StatusText(code)
	switch code {
	case http.StatusUnauthorized:
		why = "takes the token of --apiserver-token-file " + l.TokenFile + " for nobody's"
	case http.StatusForbidden:
		why = "forbids to get ConfigMap " + name + ": grant the agents' ServiceAccount the verb get on it"
	case http.StatusNotFound:
		why = "has no ConfigMap " + name + ": is a controller running, and is --controllers-configmap its?"
	}
	kind := errAnswered
	if code == http.StatusTooManyRequests || code >= http.StatusInternalServerError {
		kind = errBusy
	}
	return fmt.Errorf("%w: %s %s", kind, address, why)
}
