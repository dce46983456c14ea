package views

import "strings"

// RootCA adds the hub's CA certificates to the ConfigMap kube-root-ca.crt, by which Pods verify the API server.
// kube-controller-manager writes that ConfigMap into each namespace. The inputs of Form are the hub's CA certificates, in PEM.
var RootCA = Shown{Name: "kube-root-ca.crt", Key: "ca.crt", Form: withAuthorities}

func withAuthorities(value, authorities string) string {
	if authorities == "" {
		return value
	}
	return strings.TrimRight(value, "\n") + "\n" + authorities
}
