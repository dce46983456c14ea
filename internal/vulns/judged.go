package vulns

// judgement is what we say of a vulnerability that the database has without a version that mends it and without symbols, so that
// govulncheck finds it in whoever imports anything of the module.
type judgement struct {
	// code are the packages that have the fault. The judgement holds only while none of the programs contains them: that is
	// looked up each time.
	code   []string
	reason string
}

var judged = map[string]judgement{
	// CVE-2024-7598.
	"GO-2025-3547": {
		[]string{"k8s.io/kubernetes/pkg/controller/namespace"},
		"The fault is in kube-controller-manager's namespace controller, which no program of ours contains. Kubernetes mended " +
			"it in 1.33 (OrderedNamespaceDeletion).",
	},
	// CVE-2025-1767.
	"GO-2025-3521": {
		[]string{"k8s.io/kubernetes/pkg/volume/git_repo"},
		"The fault is in kubelet's gitRepo volumes, which no program of ours contains. kubelet has them switched off for good " +
			"since 1.36 (GitRepoVolumeDriver).",
	},
}
