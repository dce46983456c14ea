package pki

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Access is the content of a kubeconfig: the server, the authority to trust, and the client's credentials.
type Access struct {
	// Server is the URL of the API.
	Server string

	// Authority is the file of the certificate to trust. It is empty for a server without TLS.
	Authority string

	// Client names the files of the client's certificate, and Token is a bearer token. At most one of the two is set. Without
	// either, the kubeconfig has no credentials.
	Client Pair
	Token  string

	// ProxyURL, if set, is the proxy to use.
	ProxyURL string

	// Namespace is the default namespace; empty means default.
	Namespace string

	// Embed puts the content of the files into the kubeconfig, for use on another machine. Otherwise the kubeconfig names the
	// files, and renewed files take effect.
	Embed bool
}

// WriteKubeconfig writes a kubeconfig with one context, named lab, and replaces any existing one.
func WriteKubeconfig(path string, a Access) error {
	config, err := a.kubeconfig()
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := writeFile(path, content); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

func (a Access) kubeconfig() (*clientcmdapi.Config, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	cluster := &clientcmdapi.Cluster{Server: a.Server, ProxyURL: a.ProxyURL, CertificateAuthority: a.Authority}
	user := &clientcmdapi.AuthInfo{ClientCertificate: a.Client.Cert, ClientKey: a.Client.Key, Token: a.Token}
	if a.Embed {
		for _, f := range []struct {
			path *string
			data *[]byte
		}{
			{&cluster.CertificateAuthority, &cluster.CertificateAuthorityData},
			{&user.ClientCertificate, &user.ClientCertificateData},
			{&user.ClientKey, &user.ClientKeyData},
		} {
			if *f.path == "" {
				continue
			}
			content, err := os.ReadFile(*f.path)
			if err != nil {
				return nil, err
			}
			*f.path, *f.data = "", content
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = cluster
	config.AuthInfos["lab"] = user
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "lab", Namespace: a.Namespace}
	config.CurrentContext = "lab"
	return config, nil
}

func (a Access) check() error {
	server, err := url.Parse(a.Server)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	switch secure := server.Scheme == "https"; {
	case server.Host == "" || !secure && server.Scheme != "http":
		return fmt.Errorf("server %q: not an http or https URL", a.Server)
	case secure && a.Authority == "":
		return errors.New("an https server without an authority to trust")
	case !secure && a.Token != "" && !net.ParseIP(server.Hostname()).IsLoopback():
		return errors.New("a token would cross the network in the clear")
	case (a.Client.Cert == "") != (a.Client.Key == ""):
		return errors.New("a certificate needs its key, and a key its certificate")
	case a.Client.Cert != "" && a.Token != "":
		return errors.New("both a certificate and a token are set: give one of them")
	}
	return nil
}
