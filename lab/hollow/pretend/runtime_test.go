package pretend

import (
	"fmt"
	"net/netip"
	"testing"

	internalapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var (
	_ internalapi.RuntimeService = (*Runtime)(nil)
)

func sandbox(uid string, network cri.NamespaceMode) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web-" + uid, Namespace: "default", Uid: uid},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: network},
		}},
	}
}

func address(t *testing.T, p *Runtime, id string) string {
	t.Helper()
	status, err := p.PodSandboxStatus(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	return status.GetStatus().GetNetwork().GetIp()
}

func TestAddressesAreDistinctAndKept(t *testing.T) {
	cidr := netip.MustParsePrefix("10.244.1.0/26") // 62 addresses
	first, second := New(cidr), New(cidr)
	seen := map[string]string{}
	for i := range 20 {
		uid := fmt.Sprint("uid-", i)
		id, err := first.RunPodSandbox(t.Context(), sandbox(uid, cri.NamespaceMode_POD), "")
		if err != nil {
			t.Fatal(err)
		}
		got := address(t, first, id)
		if other, taken := seen[got]; taken {
			t.Errorf("%s and %s share %s", uid, other, got)
		}
		seen[got] = uid
		if !cidr.Contains(netip.MustParseAddr(got)) {
			t.Errorf("%s has %s, outside %s", uid, got, cidr)
		}
		again, err := second.RunPodSandbox(t.Context(), sandbox(uid, cri.NamespaceMode_POD), "")
		if err != nil {
			t.Fatal(err)
		}
		if after := address(t, second, again); after != got {
			t.Errorf("%s had %s and has %s in a new process", uid, got, after)
		}
	}
}

func TestAddressesOfBothFamilies(t *testing.T) {
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:128:203::/64")}
	p := New(cidrs...)
	id, err := p.RunPodSandbox(t.Context(), sandbox("a", cri.NamespaceMode_POD), "")
	if err != nil {
		t.Fatal(err)
	}
	status, err := p.PodSandboxStatus(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	network := status.GetStatus().GetNetwork()
	if more := network.GetAdditionalIps(); len(more) != 1 || !cidrs[0].Contains(netip.MustParseAddr(network.GetIp())) ||
		!cidrs[1].Contains(netip.MustParseAddr(more[0].GetIp())) {
		t.Errorf("a Pod has %v, want an address of each of %v", network, cidrs)
	}
}

func TestHostNetworkHasNoAddress(t *testing.T) {
	p := New(netip.MustParsePrefix("10.244.1.0/24"))
	id, err := p.RunPodSandbox(t.Context(), sandbox("a", cri.NamespaceMode_NODE), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := address(t, p, id); got != "" {
		t.Errorf("a Pod in the host's network has %s of its own", got)
	}
}

func TestAddressesRunOutAndComeBack(t *testing.T) {
	p := New(netip.MustParsePrefix("10.244.1.0/30")) // two addresses
	var ids []string
	for _, uid := range []string{"a", "b"} {
		id, err := p.RunPodSandbox(t.Context(), sandbox(uid, cri.NamespaceMode_POD), "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, err := p.RunPodSandbox(t.Context(), sandbox("c", cri.NamespaceMode_POD), ""); err == nil {
		t.Error("a third Pod found an address where there are two")
	}
	freed := address(t, p, ids[0])
	if err := p.RemovePodSandbox(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	id, err := p.RunPodSandbox(t.Context(), sandbox("c", cri.NamespaceMode_POD), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := address(t, p, id); got != freed {
		t.Errorf("got %s, want the freed %s", got, freed)
	}
}

func TestRecordOfCallsIsBounded(t *testing.T) {
	p := New(netip.MustParsePrefix("10.244.1.0/24"))
	for range 1000 {
		if _, err := p.ListPodSandbox(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Images().ListImages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Status(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if n, m := len(p.Called), len(p.Images().Called); n > 10 || m > 10 {
		t.Errorf("%d and %d calls on record", n, m)
	}
}

func TestHosts(t *testing.T) {
	for _, test := range []struct {
		cidr        string
		n           int
		first, last string
	}{
		{"10.244.1.0/24", 254, "10.244.1.1", "10.244.1.254"},
		{"10.244.1.77/24", 254, "10.244.1.1", "10.244.1.254"},
		{"10.244.0.0/16", 65534, "10.244.0.1", "10.244.255.254"},
		{"10.0.0.0/8", 65534, "10.0.0.1", "10.0.255.254"},
		{"fd00:1::/64", 65534, "fd00:1::1", "fd00:1::fffe"},
		{"10.244.1.8/31", 0, "", ""},
		{"10.244.1.8/32", 0, "", ""},
	} {
		p := netip.MustParsePrefix(test.cidr)
		if n := Hosts(p); n != test.n {
			t.Errorf("Hosts(%s) = %d, want %d", p, n, test.n)
		} else if n > 0 && (host(p, 0).String() != test.first || host(p, n-1).String() != test.last) {
			t.Errorf("%s: from %s to %s, want from %s to %s", p, host(p, 0), host(p, n-1), test.first, test.last)
		}
	}
}
