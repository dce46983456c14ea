package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestKubeconfig lets client-go read each kubeconfig and call a TLS server that asks for a certificate.
func TestKubeconfig(t *testing.T) {
	a, err := Create(t.TempDir(), "ca", nil)
	if err != nil {
		t.Fatal(err)
	}
	serverPair, _ := issue(t, a, Request{Name: "server", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	client, _ := issue(t, a, Request{Name: "admin", Organizations: []string{"system:masters"}, Client: true})
	address := serve(t, a, serverPair)
	for name, access := range map[string]Access{
		"files":    {Client: client},
		"embedded": {Client: client, Embed: true},
		"token":    {Token: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			access.Server, access.Authority = "https://"+address, a.Files().Cert
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := WriteKubeconfig(path, access); err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", path)
			if err != nil {
				t.Fatal(err)
			}
			config.Timeout = time.Minute
			if embedded := config.CertFile == "" && config.CAFile == ""; embedded != access.Embed {
				t.Errorf("embedded: %v, want %v", embedded, access.Embed)
			}
			hc, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, access.Server, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := hc.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			want := "admin"
			if access.Token != "" {
				want = "Bearer secret"
			}
			if got := response.Header.Get("Caller"); got != want {
				t.Errorf("the server saw %q, want %q", got, want)
			}
		})
	}
}

// serve answers with the name in the client's certificate, or else its Authorization header.
func serve(t *testing.T, a *Authority, pair Pair) (address string) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := r.Header.Get("Authorization")
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			caller = certs[0].Subject.CommonName
		}
		w.Header().Set("Caller", caller)
	})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: answer}
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func TestKubeconfigProxyAndPlainHTTP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "kubeconfig")
	err := WriteKubeconfig(path, Access{
		Server: "http://127.0.0.1:10261", ProxyURL: "http://127.0.0.1:8080", Namespace: "shop",
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Contexts[loaded.CurrentContext]
	if c == nil || loaded.Clusters[c.Cluster].ProxyURL != "http://127.0.0.1:8080" || c.Namespace != "shop" {
		t.Errorf("kubeconfig %+v", loaded)
	}
}

func TestTokenStaysOnTheMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, Access{Server: "http://127.0.0.1:10261", Token: "x"}); err != nil {
		t.Errorf("a token for a hub on the same machine: %v", err)
	}
}

func TestRefusedKubeconfigs(t *testing.T) {
	for name, a := range map[string]Access{
		"no server":           {},
		"no scheme":           {Server: "127.0.0.1:6443"},
		"unknown scheme":      {Server: "ftp://127.0.0.1"},
		"nobody to trust":     {Server: "https://127.0.0.1:6443"},
		"token in the clear":  {Server: "http://10.77.0.11:10261", Token: "x"},
		"certificate, no key": {Server: "https://127.0.0.1:6443", Authority: "ca", Client: Pair{Cert: "c"}},
		"certificate and token": {Server: "https://127.0.0.1:6443", Authority: "ca", Client: Pair{Cert: "c", Key: "k"},
			Token: "x"},
		"file to embed, missing": {Server: "https://127.0.0.1:6443", Authority: "/does/not/exist", Embed: true},
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := WriteKubeconfig(path, a); err == nil {
			t.Errorf("%s: written", name)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a file is left", name)
		}
	}
}
