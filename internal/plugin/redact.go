package plugin

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// leftOut stands for what is not told.
const leftOut = "(left out)"

// stamp may stand before a line of a log.
const stamp = `(?:\d{4}-\d\d-\d\dT\S+ )?`

// secrets is what looks like a key, a token or a password, with the group that is kept.
var secrets = []struct {
	looks *regexp.Regexp
	keeps string
}{
	// A private key in PEM, whole; one whose end is cut off; one whose begin is. In logs, times stand before the lines.
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]|-[^-])*-----END [A-Z ]*PRIVATE KEY-----`), ""},
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?:\s|\\[nr])*` + stamp + `[A-Za-z0-9+/=]{16,})*`), ""},
	{regexp.MustCompile(`(?:` + stamp + `[A-Za-z0-9+/=]{8,}(?:\s|\\[nr])*)*` + stamp + `-----END [A-Z ]*PRIVATE KEY-----`), ""},
	// Anything in PEM as base64, as kubeconfigs have it.
	{regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]*`), ""},
	// A JSON Web Token, as ServiceAccounts have it.
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), ""},
	// A bootstrap token.
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), ""},
	{regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[A-Za-z0-9._~+/=-]{6,}`), "$1 "},
	// A password within a URL.
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@"']+@`), "$1"},
	// A setting that says by its name what it is, also within a quoted text.
	{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|` +
		`client-key-data|authorization|credential)s?\\*["']?[ \t]*[=:][ \t]*)(\\*"[^"\n]*"|\\*'[^'\n]*'|[^\s,;&"'{\[]+)`), "$1"},
}

// redacted returns a text without what looks like a secret.
func redacted(text string) string {
	for _, s := range secrets {
		text = s.looks.ReplaceAllString(text, s.keeps+leftOut)
	}
	return text
}

// ownDomains are the domains whose labels and annotations are kept. Those of other software may hold anything.
var ownDomains = []string{"openyurt.io", "kubernetes.io", "k8s.io"}

// cleared removes from an object the parts that a helper does not need, and those that may hold secrets. It changes o.
func cleared(o runtime.Object) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(ours(m.GetAnnotations()))
		m.SetLabels(ours(m.GetLabels()))
	}
	switch o := o.(type) {
	case *corev1.Pod:
		for _, containers := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
			for i := range containers {
				for j := range containers[i].Env {
					if containers[i].Env[j].Value != "" {
						containers[i].Env[j].Value = leftOut
					}
				}
			}
		}
	case *corev1.Node:
		o.Status.Images = nil
	case *unstructured.Unstructured:
		for _, of := range []string{"annotations", "labels"} { // those that a NodePool wants on its nodes
			if wanted, found, err := unstructured.NestedStringMap(o.Object, "spec", of); found && err == nil {
				_ = unstructured.SetNestedStringMap(o.Object, ours(wanted), "spec", of) // spec is a map: it was read a line above
			}
		}
	}
}

// ours replaces the values of labels or annotations that are others'.
func ours(all map[string]string) map[string]string {
	for key := range all {
		domain, _, _ := strings.Cut(key, "/")
		known := slices.ContainsFunc(ownDomains, func(own string) bool {
			return domain == own || strings.HasSuffix(domain, "."+own)
		})
		if !known || key == corev1.LastAppliedConfigAnnotation {
			all[key] = leftOut
		}
	}
	return all
}
