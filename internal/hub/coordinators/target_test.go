package coordinators

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

// authority returns a certificate in PEM form.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func told(ca string) map[string]string {
	return map[string]string{
		edge.DiscoveryServer: "https://10.0.0.2:10270", edge.DiscoveryCA: ca,
		edge.DiscoveryServerName: "p1.yurt-coordinator-apiserver.kube-system.svc",
	}
}

func TestRead(t *testing.T) {
	ca := authority(t)
	got, err := Read("p1", told(ca))
	if err != nil || got != (Target{Place: Place{Address: "10.0.0.2:10270"}, CA: ca}) {
		t.Fatalf("got %v, %v", got, err)
	}
	if len(got.Clients()) > 0 {
		t.Errorf("a ConfigMap without them lists the certificates %q", got.Clients())
	}
	for _, tc := range []struct{ name, key, value, want string }{
		{"another pool's", edge.DiscoveryServerName, "p2.yurt-coordinator-apiserver.kube-system.svc", `want "p1.`},
		{"no name", edge.DiscoveryServerName, "", `want "p1.`},
		{"no server", edge.DiscoveryServer, "", "want https://"},
		{"without TLS", edge.DiscoveryServer, "http://10.0.0.2:10270", "want https://"},
		{"without a port", edge.DiscoveryServer, "https://10.0.0.2", "want https://"},
		{"with a path", edge.DiscoveryServer, "https://10.0.0.2:1/a", "want https://"},
		{"with a user", edge.DiscoveryServer, "https://a@10.0.0.2:1", "want https://"},
		{"with a query", edge.DiscoveryServer, "https://10.0.0.2:1?a", "want https://"},
		{"with a name", edge.DiscoveryServer, "https://somewhere:10270", "not IP:PORT"},
		{"no URL", edge.DiscoveryServer, "https://10.0.0.2:1%", "want https://"},
		{"no CA", edge.DiscoveryCA, "", "no certificate"},
		{"half a CA", edge.DiscoveryCA, ca[:40], "no certificate"},
	} {
		data := maps.Clone(told(ca))
		data[tc.key] = tc.value
		if got, err := Read("p1", data); err == nil || !strings.Contains(err.Error(), tc.want) || !got.IsZero() {
			t.Errorf("%s: got %v, %v, want an error with %q", tc.name, got, err, tc.want)
		}
	}
	data := told(ca)
	data[edge.DiscoveryServer] = "https://[fd00::2]:10270/"
	if got, err := Read("p1", data); err != nil || got.Address != "[fd00::2]:10270" {
		t.Errorf("IPv6: got %v, %v", got, err)
	}
}

// TestSlots: each slot has its own keys, and what nobody knows of is passed over.
func TestSlots(t *testing.T) {
	ca := authority(t)
	data := told(ca)
	maps.Copy(data, map[string]string{
		"generation": "0.7", "server-2": "https://10.0.0.3:10270", "generation-2": "2.5", "server-3": "nonsense",
		"later": "unknown", "nodes": "10.0.0.2\n10.0.0.3\n\nno-address\nfd00::6\n",
	})
	want := Target{
		Place: Place{"10.0.0.2:10270", edge.Generation{Number: 7}}, CA: ca, Nodes: "10.0.0.2\n10.0.0.3\nfd00::6",
		Others: [edge.MaxSlots - 1]Place{{}, {"10.0.0.3:10270", edge.Generation{Slot: 2, Number: 5}}},
	}
	got, err := Read("p1", data)
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for s, want := range map[edge.Slot][]string{
		0: {"10.0.0.3:10270", "[fd00::6]:10270"}, 1: nil, 2: {"10.0.0.2:10270", "[fd00::6]:10270"},
	} {
		if got := got.candidates(s); !slices.Equal(got, want) {
			t.Errorf("slot %d may be at %v, want %v", s, got, want)
		}
	}
	delete(data, "server")
	if got, err := Read("p1", data); err != nil || got.Address != "" || got.In(2).Address != "10.0.0.3:10270" {
		t.Errorf("without slot 0: %+v, %v", got, err)
	}
	for key, value := range map[string]string{
		"generation": "1.7", "generation-2": "0.5", "server-1": "somewhere", "server-2": "https://name:10270",
	} {
		wrong := maps.Clone(data)
		wrong["server"], wrong[key] = "https://10.0.0.2:10270", value
		if got, err := Read("p1", wrong); err == nil || !got.IsZero() {
			t.Errorf("%s %s is taken: %+v", key, value, got)
		}
	}
	delete(data, "server-2")
	if got, err := Read("p1", data); err == nil || !strings.Contains(err.Error(), "server is missing") {
		t.Errorf("without any: %+v, %v", got, err)
	}
	data = told(ca)
	data["nodes"] = strings.Repeat("10.0.0.2 ", maxNodes+10)
	if got, err := Read("p1", data); err != nil || len(strings.Fields(got.Nodes)) != maxNodes {
		t.Errorf("of too many nodes: %d, %v", len(strings.Fields(got.Nodes)), err)
	}
}

// TestRecallOfBefore: what a hub kept before there were generations is known.
func TestRecallOfBefore(t *testing.T) {
	ca := authority(t)
	content, err := json.Marshal(map[string]string{"pool": "p1", "address": "10.0.0.2:10270", "ca": ca})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := recall("p1", content); err != nil || got != (Target{Place: Place{Address: "10.0.0.2:10270"}, CA: ca}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestClients: the list is read as it is meant, and up to an end.
func TestClients(t *testing.T) {
	ca := authority(t)
	for text, want := range map[string][]string{
		"":                                  {},
		"\n":                                {},
		"X509SHA256=aa":                     {"X509SHA256=aa"},
		"X509SHA256=aa\n\n X509SHA256=bb\n": {"X509SHA256=aa", "X509SHA256=bb"},
		strings.Repeat("a ", maxClients+10): slices.Repeat([]string{"a"}, maxClients),
	} {
		data := told(ca)
		data[edge.DiscoveryClients] = text
		got, err := Read("p1", data)
		if err != nil || !slices.Equal(got.Clients(), want) {
			t.Errorf("%.20q: %q, %v, want %q", text, got.Clients(), err, want)
		}
	}
}

// TestDenied: as clients are.
func TestDenied(t *testing.T) {
	data := told(authority(t))
	data[edge.DiscoveryDenied] = "system:node:n1\n X509SHA256=aa\n\n"
	if got, err := Read("p1", data); err != nil || got.Denied != "system:node:n1\nX509SHA256=aa" {
		t.Errorf("%q, %v", got.Denied, err)
	}
	data[edge.DiscoveryDenied] = strings.Repeat("a\n", maxDenied+10)
	if got, err := Read("p1", data); err != nil || len(strings.Fields(got.Denied)) != maxDenied {
		t.Errorf("%d are denied, %v", len(strings.Fields(got.Denied)), err)
	}
}

func TestRecall(t *testing.T) {
	want := Target{
		Place:  Place{"10.0.0.2:10270", edge.Generation{Number: 7}},
		Others: [edge.MaxSlots - 1]Place{{}, {"10.0.0.3:10270", edge.Generation{Slot: 2, Number: 5}}},
		CA:     authority(t), Nodes: "10.0.0.3\n10.0.0.4", KubeletClients: "X509SHA256=aa\nX509SHA256=bb",
		Denied: "system:node:n1",
	}
	content, err := json.Marshal(remembered{"p1", want})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := recall("p1", content); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := recall("p2", content); err == nil {
		t.Errorf("what was another pool's is recalled: %v", got)
	}
	for length := range content {
		if got, err := recall("p1", content[:length]); err == nil {
			t.Fatalf("the first %d bytes of %d are recalled: %v", length, len(content), got)
		}
	}
}
