package edge

import (
	"fmt"
	"net/netip"
	"strings"
)

// AnnotationLANAddress on a Node has the addresses at which the pool's other nodes reach the node: at most one for each IP
// family, separated by commas. Without the annotation they use the Node's InternalIP. The policy lan-address keeps nodes from
// writing the annotation.
const AnnotationLANAddress = "openyurt.io/lan-address"

// maxLANAddresses is one for each IP family.
const maxLANAddresses = 2

// LANAddresses returns the addresses in a Node's AnnotationLANAddress, the preferred one first; nil if the annotation is invalid.
func LANAddresses(annotations map[string]string) []netip.Addr {
	all, err := ParseLANAddresses(annotations[AnnotationLANAddress])
	if err != nil {
		return nil
	}
	return all
}

// ParseLANAddresses reads the value of AnnotationLANAddress.
func ParseLANAddresses(text string) (all []netip.Addr, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		address, err := netip.ParseAddr(strings.TrimSpace(part))
		address = address.Unmap()
		switch {
		case err != nil, !address.IsGlobalUnicast(), address.Zone() != "":
			return nil, fmt.Errorf("%.64q is no address on a LAN", part)
		case len(all) == maxLANAddresses, len(all) == 1 && all[0].Is4() == address.Is4():
			return nil, fmt.Errorf("%.99q: want one address, or one of each IP family", text)
		}
		all = append(all, address)
	}
	return all, nil
}
