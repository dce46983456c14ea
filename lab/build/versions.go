package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// othersDir has a module of ours for each other Kubernetes that a lab can have, in a directory with the name of its minor
// version. Such a module is only a go.mod, with Kubernetes' programs as its tools, and a go.sum: see
// docs/adr/0041-other-versions.md.
const othersDir = "lab/kubernetes"

// KubeletSkew is how many minor versions a kubelet may be older than the API server, by Kubernetes' own rules.
const KubeletSkew = 3

// Which of kubernetesPrograms a cloud and its nodes run.
var (
	cloudPrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubeadm"}
	nodePrograms  = []string{"kube-proxy", "kubelet"}
)

// other is a Kubernetes that is not ours.
type other struct {
	minor   string // as "1.34"
	version string // as "v1.34.4"
	// tree stands for its module.
	tree string
	// programs are those of its programs that the lab runs.
	programs []string
}

// Versions returns the minor versions of Kubernetes that a lab can have, the oldest first, and says which one is ours.
// moduleRoot is the directory of the product's go.mod.
func Versions(ctx context.Context, moduleRoot string) (all []string, ours string, err error) {
	tool, err := newGoTool(moduleRoot)
	if err != nil {
		return nil, "", err
	}
	dir := filepath.Join(moduleRoot, labDir)
	_, required, err := tool.module(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	if ours, err = minorOf(required[kubernetesModule]); err != nil {
		return nil, "", fmt.Errorf("%s in %s: %w", kubernetesModule, dir, err)
	}
	if all, err = otherVersions(moduleRoot); err != nil {
		return nil, "", err
	}
	all = append(all, ours)
	slices.SortFunc(all, compare)
	return all, ours, nil
}

// compare orders minor versions. Those that can't be read are equal to all others: the caller has read them before.
func compare(a, b string) int {
	v, err := version.ParseMajorMinor(a)
	if err != nil {
		return 0
	}
	order, err := v.Compare(b)
	if err != nil {
		return 0
	}
	return order
}

// otherVersions returns the minor versions that there are modules for, in no order that means anything.
func otherVersions(moduleRoot string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(moduleRoot, filepath.FromSlash(othersDir)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("other versions of Kubernetes: %w", err)
	}
	var all []string
	for _, e := range entries {
		if _, err := version.ParseMajorMinor(e.Name()); err == nil && e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all, nil
}

// minorOf returns the minor version, as "1.34", of a version such as v1.34.4.
func minorOf(text string) (string, error) {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor()), nil
}

// choose returns the minor versions of the cloud and of its nodes. kubernetes and kubelet are the command line's flags. An
// empty kubernetes means our version, and an empty kubelet means the cloud's version. there lists the versions besides ours
// that can be had.
func choose(ours string, there []string, kubernetes, kubelet string) (cloud, node string, err error) {
	can := append(slices.Clone(there), ours)
	slices.SortFunc(can, compare)
	choice := func(flag, text string) (*version.Version, error) {
		v, err := version.ParseMajorMinor(text)
		if err != nil || v.String() != text {
			return nil, fmt.Errorf("--%s %q: want a minor version, as 1.34", flag, text)
		}
		if !slices.Contains(can, v.String()) {
			return nil, fmt.Errorf("--%s %s: want one of %s", flag, text, strings.Join(can, ", "))
		}
		return v, nil
	}
	if kubernetes == "" {
		kubernetes = ours
	}
	of, err := choice("kubernetes", kubernetes)
	if err != nil {
		return "", "", err
	}
	if kubelet == "" {
		kubelet = of.String()
	}
	on, err := choice("kubelet-version", kubelet)
	switch {
	case err != nil:
		return "", "", err
	case of.LessThan(on):
		return "", "", fmt.Errorf("--kubelet-version %s: Kubernetes has no kubelets that are newer than the API server, "+
			"which is %s", on, of)
	case on.AddMinor(KubeletSkew).LessThan(of):
		return "", "", fmt.Errorf("--kubelet-version %s: Kubernetes %s has kubelets that are at most %d minor versions older",
			on, of, KubeletSkew)
	}
	return of.String(), on.String(), nil
}

// others adds the other versions of Kubernetes that are asked for.
func (b *builder) others(ctx context.Context, root string, config Config, in *inputs) error {
	ours, err := minorOf(in.versions.kubernetes)
	if err != nil {
		return fmt.Errorf("%s: %w", kubernetesModule, err)
	}
	there, err := otherVersions(root)
	if err != nil {
		return err
	}
	cloud, node, err := choose(ours, there, config.Kubernetes, config.KubeletVersion)
	if err != nil {
		return err
	}
	in.versions.cloud, in.versions.node = in.versions.kubernetes, in.versions.kubernetes
	for _, side := range []struct {
		minor    string
		programs []string
		version  *string
	}{{cloud, cloudPrograms, &in.versions.cloud}, {node, nodePrograms, &in.versions.node}} {
		if side.minor == ours {
			continue
		}
		at := slices.IndexFunc(in.others, func(o other) bool { return o.minor == side.minor })
		if at < 0 {
			o, err := b.other(ctx, root, side.minor)
			if err != nil {
				return err
			}
			at, in.others = len(in.others), append(in.others, o)
		}
		in.others[at].programs = append(in.others[at].programs, side.programs...)
		*side.version = in.others[at].version
	}
	return nil
}

// other reads the module of another version.
func (b *builder) other(ctx context.Context, root, minor string) (other, error) {
	dir := filepath.Join(root, filepath.FromSlash(othersDir), minor)
	_, required, err := b.tool.module(ctx, dir)
	if err != nil {
		return other{}, err
	}
	o := other{minor: minor, version: required[kubernetesModule]}
	if o.version == "" {
		return other{}, fmt.Errorf("%s: %w in %s", kubernetesModule, errNotRequired, dir)
	}
	o.tree, err = fingerprint(dir)
	return o, err
}

// otherKubernetes returns all programs of another Kubernetes, though a lab may run only some of them. One lab may use a version
// for its nodes, and another lab the same version for its cloud.
func otherKubernetes(o other) set {
	return set{
		name:   SetKubernetes + o.minor, // no hyphen: sets of a name are found by it
		source: o.tree,
		gives:  prefix("bin/", o.programs...),
		stages: []stage{{
			Name:     StageKubernetes,
			Title:    "Kubernetes " + o.version,
			Dir:      path.Join(othersDir, o.minor),
			Packages: prefix(kubernetesModule+"/cmd/", kubernetesPrograms...),
			Output:   "bin/",
			Tags:     tags,
			LDFlags:  VersionFlags(o.version),
			Apart:    true,
		}},
	}
}
