// Package pretend is the container runtime of a hollow kubelet: it claims to run what it is told to run.
package pretend

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
)

// Runtime is Kubernetes' fake container runtime with two fixes: every sandbox gets its own address, which it keeps over
// restarts of this process, and the record of calls does not grow with time.
//
// The kubelet calls it directly. A gRPC socket in between, as in kubemark, would only be another file to clean up.
type Runtime struct {
	*apitest.FakeRuntimeService
	imageService *apitest.FakeImageService
	cidrs        []netip.Prefix

	mu        sync.Mutex
	addresses map[netip.Addr]string // to the sandbox that has it
}

// New returns a runtime whose Pods each have an address from each of podCIDRs.
func New(podCIDRs ...netip.Prefix) *Runtime {
	p := &Runtime{
		FakeRuntimeService: apitest.NewFakeRuntimeService(),
		imageService:       apitest.NewFakeImageService(),
		cidrs:              podCIDRs,
		addresses:          map[netip.Addr]string{},
	}
	p.FakeStatus = &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true},
		{Type: cri.NetworkReady, Status: true},
	}}
	return p
}

// Images returns the runtime's image service, which has every image.
func (p *Runtime) Images() *apitest.FakeImageService { return p.imageService }

// Status is called every few seconds, so it also forgets the recorded calls.
func (p *Runtime) Status(ctx context.Context, verbose bool) (*cri.StatusResponse, error) {
	p.Lock()
	p.Called = p.Called[:0]
	p.Unlock()
	p.imageService.Lock()
	p.imageService.Called = p.imageService.Called[:0]
	p.imageService.Unlock()
	return p.FakeRuntimeService.Status(ctx, verbose)
}

// RunPodSandbox starts a sandbox with an address from each Pod CIDR. A sandbox in the host's network gets none.
func (p *Runtime) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	id, err := p.FakeRuntimeService.RunPodSandbox(ctx, config, handler)
	if err != nil {
		return "", err
	}
	network := &cri.PodSandboxNetworkStatus{}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != cri.NamespaceMode_NODE {
		for i, cidr := range p.cidrs {
			address, err := p.claim(cidr, config.GetMetadata().GetUid(), id)
			switch {
			case err != nil:
				return "", err
			case i == 0:
				network.Ip = address.String()
			default:
				network.AdditionalIps = append(network.AdditionalIps, &cri.PodIP{Ip: address.String()})
			}
		}
	}
	p.Lock()
	defer p.Unlock()
	if sandbox := p.Sandboxes[id]; sandbox != nil {
		sandbox.Network = network
	}
	return id, nil
}

// RemovePodSandbox removes a sandbox and frees its address.
func (p *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := p.FakeRuntimeService.RemovePodSandbox(ctx, id); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, owner := range p.addresses {
		if owner == id {
			delete(p.addresses, address)
		}
	}
	return nil
}

func (p *Runtime) claim(cidr netip.Prefix, uid, sandbox string) (netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	address, ok := pick(cidr, uid, func(a netip.Addr) bool {
		owner, taken := p.addresses[a]
		return taken && owner != sandbox
	})
	if !ok {
		return netip.Addr{}, fmt.Errorf("no address left in %s for sandbox %s", cidr, sandbox)
	}
	p.addresses[address] = sandbox
	return address, nil
}

// pick returns the first free address for a Pod, searching from a place that only its UID decides. So a Pod has the
// same address after a restart, unless two collide. The network's first and last addresses are not used.
func pick(cidr netip.Prefix, uid string, taken func(netip.Addr) bool) (netip.Addr, bool) {
	n := Hosts(cidr)
	sum := sha256.Sum256([]byte(uid))
	start := int(binary.BigEndian.Uint32(sum[:]) % uint32(max(n, 1)))
	for i := range n {
		if address := host(cidr, (start+i)%n); !taken(address) {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// maxHosts bounds how much of a large network is used, so that the search of a full one ends.
const maxHosts = 1 << 16

// Hosts returns the number of usable addresses of a network.
func Hosts(cidr netip.Prefix) int {
	bits := cidr.Addr().BitLen() - cidr.Bits()
	if bits > 16 {
		return maxHosts - 2
	}
	return max(1<<bits-2, 0)
}

// host returns the network's i-th usable address, counted from 0.
func host(cidr netip.Prefix, i int) netip.Addr {
	b := cidr.Masked().Addr().AsSlice()
	low := b[len(b)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(i)+1)
	a, _ := netip.AddrFromSlice(b)
	return a
}
