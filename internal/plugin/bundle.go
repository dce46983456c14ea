package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/edge"
)

const (
	// logBytes and logLines bound each log in a bundle.
	logBytes, logLines = 4 << 20, 20_000
	// mostEvents bounds the Events in a bundle.
	mostEvents = 5000
)

// Bundle writes all that can be read about a pool, as a compressed tar archive. lacks says what the archive lacks, and why.
// Bundle never reads a Secret, and removes from everything else what looks like a key or a password (redact.go).
func (r *Reader) Bundle(ctx context.Context, pool string, to io.Writer, now time.Time) (lacks []string, err error) {
	p, _, err := r.pool(ctx, pool)
	if err != nil {
		return nil, err
	}
	compressed := gzip.NewWriter(to)
	b := &bundle{reader: r, pool: p, within: r.Within != "", now: now, archive: tar.NewWriter(compressed)}
	b.gather(ctx)
	b.readme()
	return b.lacks, errors.Join(b.err, b.archive.Close(), compressed.Close())
}

// bundle is an archive that is being written.
type bundle struct {
	reader  *Reader
	pool    *Pool
	within  bool
	now     time.Time
	archive *tar.Writer
	files   []string
	lacks   []string
	// err is the first error of writing. What can't be read is no error.
	err error
}

// gather reads and writes one thing after the other.
func (b *bundle) gather(ctx context.Context) {
	b.text("status.txt", func(p *printer) error {
		return errors.Join(p.pools([]Pool{*b.pool}, poolView{}), p.lines("", b.pool.Problems))
	})
	about := sets.New(b.pool.Name)
	if !b.within {
		b.our(ctx, "nodepool.yaml", nodePools, func(u *unstructured.Unstructured) bool { return u.GetName() == b.pool.Name })
		b.our(ctx, "yurtcoordinators.yaml", yurtCoordinators, func(u *unstructured.Unstructured) bool {
			of, _, _ := unstructured.NestedString(u.Object, "spec", "nodePool")
			if of == b.pool.Name {
				about.Insert(u.GetName())
			}
			return of == b.pool.Name
		})
		b.our(ctx, "poolsettings.yaml", poolSettings, func(*unstructured.Unstructured) bool { return true })
	}
	nodes := b.nodes(ctx)
	beats := b.leases(ctx, nodes)
	pods := b.pods(ctx)
	for _, n := range nodes {
		about.Insert(n.Name)
	}
	for _, p := range pods {
		about.Insert(p.Name)
	}
	events := b.events(ctx, about)
	evictors := b.evictors(ctx)
	for i := range nodes {
		b.node(&nodes[i], beats, events, evictors)
	}
	for i := range pods {
		b.logs(ctx, &pods[i])
	}
}

// without notes what can't be told. A server that does not know a kind lacks nothing.
func (b *bundle) without(what string, err error) {
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		b.lacks = append(b.lacks, redacted(fmt.Sprintf("%s: %v", what, err)))
	}
}

func (b *bundle) add(name, text string) {
	if b.err != nil {
		return
	}
	content := []byte(redacted(text))
	b.files = append(b.files, name)
	b.err = b.archive.WriteHeader(&tar.Header{
		Name: path.Join("yurt-"+b.pool.Name, name), Mode: 0o600, Size: int64(len(content)), ModTime: b.now, Format: tar.FormatPAX,
	})
	if b.err == nil {
		_, b.err = b.archive.Write(content)
	}
}

// text adds what a person would see.
func (b *bundle) text(name string, show func(*printer) error) {
	var text bytes.Buffer
	if err := show(&printer{out: &text, wide: true, now: b.now}); err != nil {
		b.without(name, err)
		return
	}
	b.add(name, text.String())
}

// objects adds objects as YAML.
func (b *bundle) objects(name string, all ...runtime.Object) {
	var text strings.Builder
	for _, o := range all {
		o = o.DeepCopyObject()
		if kinds, _, err := scheme.Scheme.ObjectKinds(o); err == nil {
			o.GetObjectKind().SetGroupVersionKind(kinds[0]) // typed clients leave it out
		}
		cleared(o)
		content, err := yaml.Marshal(o)
		if err != nil {
			b.without(name, err)
			return
		}
		text.WriteString("---\n")
		text.Write(content)
	}
	if len(all) > 0 {
		b.add(name, text.String())
	}
}

// our adds objects of a kind of ours.
func (b *bundle) our(
	ctx context.Context, name string, of schema.GroupVersionResource, wanted func(*unstructured.Unstructured) bool,
) {
	all, err := pages[unstructured.Unstructured](ctx, metav1.ListOptions{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return b.reader.Dynamic.Resource(of).List(ctx, o)
		})
	if err != nil {
		b.without(of.Resource, err)
		return
	}
	var found []runtime.Object
	for i := range all {
		if wanted(&all[i]) {
			found = append(found, &all[i])
		}
	}
	b.objects(name, found...)
}

func (b *bundle) nodes(ctx context.Context) []corev1.Node {
	opts := nodesOf(b.pool.Name)
	if b.within {
		opts = metav1.ListOptions{}
	}
	nodes, err := b.reader.nodes(ctx, opts)
	if err != nil {
		b.without("Nodes", err)
		return nil
	}
	for i := range nodes {
		b.objects("nodes/"+nodes[i].Name+".yaml", &nodes[i])
	}
	return nodes
}

// node adds why a node is in its state, and what is to be done about it. If its Lease could not be read, that is not known.
func (b *bundle) node(
	n *corev1.Node, beats map[string]*coordinationv1.Lease, events []corev1.Event, evictors []string,
) {
	lease, known := beats[n.Name]
	if !known {
		return
	}
	s := Subject{Name: n.Name, Node: n, Lease: lease, Pool: b.pool, Evictors: evictors, Within: b.within}
	for _, e := range events {
		if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == n.Name {
			s.Events = append(s.Events, e)
		}
	}
	b.text("nodes/"+n.Name+".txt", func(p *printer) error {
		err := p.explanation(Explain(s, b.now))
		p.nextTable()
		return errors.Join(err, p.lines("", nil), p.findings(n.Name, Check(s, b.now)))
	})
}

// evictors reads which deschedulers evict for our taint, which a coordinator does not know.
func (b *bundle) evictors(ctx context.Context) []string {
	if b.within {
		return nil
	}
	all, err := b.reader.evictors(ctx)
	if err != nil {
		b.without("ConfigMaps of deschedulers", err)
	}
	return all
}

// leases adds the pool's reports, the nodes' heartbeats, and in the cloud the controller's Lease. It returns the nodes' and the
// controller's Leases by name. A nil Lease means that there is none. A Lease that could not be read is left out.
func (b *bundle) leases(ctx context.Context, nodes []corev1.Node) map[string]*coordinationv1.Lease {
	var found []runtime.Object
	beats := map[string]*coordinationv1.Lease{}
	add := func(namespace, name string) {
		l, err := b.reader.Kube.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			found, beats[name] = append(found, l), l
		case apierrors.IsNotFound(err):
			beats[name] = nil
		default:
			b.without("Lease "+namespace+"/"+name, err)
		}
	}
	reports, err := b.reader.reportsFor(ctx, edge.PoolName(b.pool.Name))
	if err != nil {
		b.without("reports of the pool's leaders", err)
	}
	for i := range reports {
		found = append(found, &reports[i])
	}
	for _, n := range nodes {
		add(corev1.NamespaceNodeLease, n.Name)
	}
	if !b.within {
		add(edge.NamespaceSystem, leaseOfController)
	}
	b.objects("leases.yaml", found...)
	return beats
}

// pods adds the Pods of the pool's coordinators and of the controllers, and returns them.
func (b *bundle) pods(ctx context.Context) []corev1.Pod {
	apps := edge.LabelApp + " in (" + strings.Join([]string{
		edge.AppCoordinator, leaseOfController, "coordinator-approver",
	}, ",") + ")"
	all, err := pages[corev1.Pod](ctx, metav1.ListOptions{LabelSelector: apps},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return b.reader.Kube.CoreV1().Pods(edge.NamespaceSystem).List(ctx, o)
		})
	if err != nil {
		b.without("Pods of "+edge.NamespaceSystem, err)
		return nil
	}
	all = slices.DeleteFunc(all, func(p corev1.Pod) bool {
		return p.Labels[edge.LabelApp] == edge.AppCoordinator && !b.within && p.Labels[edge.LabelNodePool] != b.pool.Name
	})
	for i := range all {
		b.objects("pods/"+all[i].Name+".yaml", &all[i])
	}
	return all
}

// logs adds what the containers of a Pod have logged, and those before them that have ended.
func (b *bundle) logs(ctx context.Context, p *corev1.Pod) {
	for _, c := range p.Spec.Containers {
		for _, previous := range []bool{false, true} {
			name := "logs/" + p.Name + "-" + c.Name
			if previous {
				if !restarted(p, c.Name) {
					continue
				}
				name += "-before"
			}
			log, err := b.reader.Kube.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
				Container: c.Name, Previous: previous, Timestamps: true, LimitBytes: ptr.To[int64](logBytes),
				TailLines: ptr.To[int64](logLines),
			}).DoRaw(ctx)
			if err != nil {
				b.lacks = append(b.lacks, redacted(fmt.Sprintf("%s: %v", name, err)))
				continue
			}
			b.add(name+".log", string(log))
		}
	}
}

func restarted(p *corev1.Pod, container string) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == container && s.RestartCount > 0
	})
}

// events adds the Events about the pool, its nodes and its Pods, the newest ones, and returns them.
func (b *bundle) events(ctx context.Context, about sets.Set[string]) (found []corev1.Event) {
	for _, kind := range []string{"Node", "NodePool", "YurtCoordinator", "PoolSettings", "Pod"} {
		namespace := metav1.NamespaceAll
		if kind == "Pod" {
			namespace = edge.NamespaceSystem
		}
		all, err := pages[corev1.Event](ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return b.reader.Kube.CoreV1().Events(namespace).List(ctx, o)
			})
		if err != nil {
			b.without("Events about "+kind+"s", err)
		}
		for _, e := range all {
			if of := e.InvolvedObject; of.Kind == kind && (kind == "PoolSettings" || about.Has(of.Name)) {
				found = append(found, e)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return happened(&a).Compare(happened(&b)) })
	if n := len(found) - mostEvents; n > 0 {
		b.lacks = append(b.lacks, fmt.Sprintf("%d Events, the oldest ones", n))
		found = found[n:]
	}
	objects := make([]runtime.Object, len(found))
	for i := range found {
		objects[i] = &found[i]
	}
	b.objects("events.yaml", objects...)
	return found
}

// readme says what is in the archive, and what is not.
func (b *bundle) readme() {
	asked := "the cloud"
	if b.within {
		asked = "its coordinator"
	}
	b.text("README.txt", func(p *printer) error {
		_, err := fmt.Fprintf(p.out, "Pool %s, as %s reported it at %s by the clock of this machine.\n"+
			"Secrets were not read. What other software has written on objects, and what looks like a key, is replaced by %q.\n",
			b.pool.Name, asked, b.now.UTC().Format(time.RFC3339), leftOut)
		return errors.Join(err, p.lines("\nFiles:", b.files), p.lines("\nMissing:", b.lacks))
	})
}

// lines prints a title and lines below it; without a title, an empty line.
func (p *printer) lines(title string, all []string) error {
	if title != "" && len(all) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(p.out, title)
	for _, line := range all {
		if err == nil {
			_, err = fmt.Fprintln(p.out, line)
		}
	}
	return err
}
