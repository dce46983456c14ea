package cloud

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/cloud/certs"
)

// Coordinators know kubelets by the authority that the controller knows the API server by, as its file is at that moment.
func TestKubeletAuthority(t *testing.T) {
	pair, err := certs.SelfSigned("cluster", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if kubeletAuthority(&rest.Config{}) != nil {
		t.Error("there is an authority where nothing names one")
	}
	inline := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: pair.Cert}}
	if bundle, err := kubeletAuthority(inline)(); err != nil || !bytes.Equal(bundle, pair.Cert) {
		t.Errorf("in the kubeconfig: %q, %v", bundle, err)
	}
	path := filepath.Join(t.TempDir(), "ca.crt")
	inFile := kubeletAuthority(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: path}})
	if _, err := inFile(); err == nil {
		t.Error("a file that is not there is no error")
	}
	if err := os.WriteFile(path, pair.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if bundle, err := inFile(); err != nil || !bytes.Equal(bundle, pair.Cert) {
		t.Errorf("in a file: %q, %v", bundle, err)
	}
	_, err = kubeletAuthority(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("none")}})()
	if err == nil || !strings.Contains(err.Error(), "certificate-authority") {
		t.Errorf("without any in it: %v", err)
	}
}
