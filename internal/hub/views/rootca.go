package views

import "strings"

// RootCA is the value with the CA certificates by which Pods verify the API server, and so the hub. kube-controller-manager
// writes it into each namespace. Its inputs are the CA certificates of the hub's server, in PEM. kubelet sees them after the
// cloud's.
var RootCA = Shown{Name: "kube-root-ca.crt", Key: "ca.crt", Form: withAuthorities}

func withAuthorities(value, authorities string) string {
	if authorities == "" {
		return value
	}
	return strings.TrimRight(value, "\n") + "\n" + authorities
}
