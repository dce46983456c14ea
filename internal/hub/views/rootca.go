package views

import "strings"

// RootCA adds the hub's CA certificates to those by which Pods verify the API server. kube-controller-manager writes this
// ConfigMap into each namespace. The inputs are the hub's CA certificates, in PEM.
var RootCA = Shown{Name: "kube-root-ca.crt", Key: "ca.crt", Form: withAuthorities}

func withAuthorities(value, authorities string) string {
	if authorities == "" {
		return value
	}
	return strings.TrimRight(value, "\n") + "\n" + authorities
}
