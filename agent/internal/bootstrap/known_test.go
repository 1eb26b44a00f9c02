package bootstrap

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/internal/testca"
)

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:6443":                "",
		"[2001:db8::1]:6443":            "",
		"api.example.org:6443":          "",
		"host":                          "want HOST:PORT",
		":6443":                         "want HOST:PORT",
		"a b:6443":                      "want HOST:PORT",
		"user@host:6443":                "want HOST:PORT",
		"host/path:6443":                "want HOST:PORT",
		"host:99999":                    "is no port",
		"host:0":                        "is no port",
		"kubernetes.default.svc:443":    "a name of the cluster's DNS",
		"c.cluster.local.:7443":         "a name of the cluster's DNS",
		"C.Fairlead.SVC.Cluster.Xyz:17": "a name of the cluster's DNS",
	} {
		if err := CheckAddress(address); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", address, err, want)
		}
	}
}

// configMap is an object as the API server sends it.
func configMap(t testing.TB, data map[string]string) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": "fairlead-controllers"}, "data": data,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestParseConfigMap takes what is good and says what is not.
func TestParseConfigMap(t *testing.T) {
	old, next := testca.New(t).PEM(), testca.New(t).PEM()
	for name, c := range map[string]struct {
		body []byte
		want Known
		err  string
	}{
		"all": {
			configMap(t, map[string]string{"ca.crt": old + next, "controllers": "192.0.2.2:7443\n192.0.2.1:7443\n", "apiservers": "[2001:db8::1]:6443", "later": "x"}),
			Known{Controllers: []string{"192.0.2.1:7443", "192.0.2.2:7443"}, APIServers: []string{"[2001:db8::1]:6443"}, Bundle: old + next},
			"",
		},
		"one controller is wrong": {
			configMap(t, map[string]string{"controllers": "c.fairlead-system.svc:7443\n192.0.2.1:7443"}),
			Known{Controllers: []string{"192.0.2.1:7443"}},
			`ConfigMap, controllers: "c.fairlead-system.svc:7443": is a name of the cluster's DNS`,
		},
		"no bundle":      {configMap(t, map[string]string{"ca.crt": "no", "controllers": "192.0.2.1:1"}), Known{Controllers: []string{"192.0.2.1:1"}}, "ConfigMap, ca.crt: CA bundle: holds no certificate"},
		"a private key":  {configMap(t, map[string]string{"ca.crt": old + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}), Known{}, "holds a PRIVATE KEY: want certificates alone"},
		"no certificate": {configMap(t, map[string]string{"ca.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}), Known{}, "certificate 1: x509"},
		"empty":          {configMap(t, nil), Known{}, "ConfigMap, controllers: names none"},
		"something else": {[]byte(`{"kind":"Status","data":{"controllers":"192.0.2.1:1"}}`), Known{}, `kind "Status": want ConfigMap`},
		"no JSON":        {[]byte("<html>"), Known{}, "answer of the API server: invalid character"},
	} {
		got, err := parseConfigMap(c.body)
		if !got.equal(c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %+v, %v; want %+v, %q", name, got, err, c.want, c.err)
		}
	}
}

// TestDisk: what is saved is loaded; what nobody would have saved is not.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	if _, err := load(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	want := Known{Controllers: []string{"192.0.2.1:7443"}, APIServers: []string{"192.0.2.9:6443"}, Bundle: testca.New(t).PEM()}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := load(dir); err != nil || !got.equal(want) {
		t.Errorf("%+v, %v", got, err)
	}
	path := filepath.Join(dir, fileName)
	for content, fault := range map[string]string{
		"{": "unexpected end", `{"controllers":["x"]}`: "want HOST:PORT", `{"bundle":"x"}`: "holds no certificate", "": "unexpected end",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := load(dir); err == nil || !strings.Contains(err.Error(), fault) || !strings.Contains(err.Error(), path) || !got.equal(Known{}) {
			t.Errorf("%q: %+v, %v", content, got, err)
		}
	}
}

// FuzzParseConfigMap: whatever an API server answers, nothing crashes and what is taken can be used.
func FuzzParseConfigMap(f *testing.F) {
	f.Add(configMap(f, map[string]string{"ca.crt": testca.New(f).PEM(), "controllers": "192.0.2.1:7443"}))
	f.Fuzz(func(t *testing.T, body []byte) {
		k, _ := parseConfigMap(body)
		for _, address := range slices.Concat(k.Controllers, k.APIServers) {
			if err := CheckAddress(address); err != nil {
				t.Error(err)
			}
		}
		if _, err := k.Pool(); err != nil && k.Bundle != "" {
			t.Error(err)
		}
	})
}
