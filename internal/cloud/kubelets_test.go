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
	verify := Config{Coordinator: Coordinator{VerifyKubelets: true}}
	if kubeletAuthority(Config{}, &rest.Config{}) != nil {
		t.Error("kubelets are verified, though they are not to be")
	}
	inline := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: pair.Cert}}
	if bundle, err := kubeletAuthority(verify, inline)(); err != nil || !bytes.Equal(bundle, pair.Cert) {
		t.Errorf("in the kubeconfig: %q, %v", bundle, err)
	}
	path := filepath.Join(t.TempDir(), "ca.crt")
	inFile := kubeletAuthority(verify, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: path}})
	if _, err := inFile(); err == nil {
		t.Error("a file that is not there is no error")
	}
	if err := os.WriteFile(path, pair.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if bundle, err := inFile(); err != nil || !bytes.Equal(bundle, pair.Cert) {
		t.Errorf("in a file: %q, %v", bundle, err)
	}
	_, err = kubeletAuthority(verify, &rest.Config{})()
	if err == nil || !strings.Contains(err.Error(), "--verify-kubelets=false") {
		t.Errorf("without any: %v", err)
	}
}
