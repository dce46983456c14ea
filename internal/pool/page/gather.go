package page

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

const (
	// pageOfPods, pageOfNodes and pageOfOthers are how many objects are read at a time: some MB at most.
	pageOfPods, pageOfNodes, pageOfOthers = 250, 50, 500
	// maxEvents is how many Events are kept: the newest.
	maxEvents = 60
	// maxText bounds, in bytes, what is kept of one text.
	maxText = 600
	// asTable has kube-apiserver print Pods as it does for kubectl.
	asTable = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

// gather reads the facts. What can't be read is in AsRead.Missing.
func (p *Page) gather(ctx context.Context) Facts {
	f := Facts{Heard: p.config.Heard(), AsRead: AsRead{
		At: p.config.Clock.Wall(), Began: p.began, Host: p.config.Host, Version: p.config.Version, Shared: p.config.Shared(),
	}}
	try := func(what string, err error) {
		if err != nil {
			f.Missing = append(f.Missing, fmt.Sprintf("%s can't be read at this moment: %s", what, short(err.Error())))
		}
	}
	var err error
	f.Leader, err = p.config.Leader(ctx)
	try("Who leads", err)
	f.Nodes, err = p.nodes(ctx)
	try("Nodes", err)
	f.Leases, err = p.leases(ctx)
	try("Heartbeats", err)
	f.Pods, err = p.pods(ctx)
	try("Pods", err)
	f.Events, err = p.events(ctx)
	try("Events", err)
	return f
}

// pages calls read for each page of a list, with where it begins; read returns where the next one does.
func pages(read func(from string) (next string, err error)) error {
	next, err := read("")
	for err == nil && next != "" {
		next, err = read(next)
	}
	return err
}

func (p *Page) nodes(ctx context.Context) (all []NodeFact, err error) {
	err = pages(func(from string) (string, error) {
		list, err := p.config.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: pageOfNodes, Continue: from})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			all = append(all, nodeFact(&list.Items[i]))
		}
		return list.Continue, nil
	})
	return all, err
}

func nodeFact(n *corev1.Node) NodeFact {
	fact := NodeFact{
		Name: edge.NodeName(n.Name), Pool: edge.PoolName(n.Labels[edge.LabelNodePool]), Unschedulable: n.Spec.Unschedulable,
		Version: short(n.Status.NodeInfo.KubeletVersion),
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			fact.Ready = string(c.Status)
		}
	}
	if on := edge.LANAddresses(n.Annotations); len(on) > 0 {
		fact.Address = on[0].String()
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			fact.Address = cmp.Or(fact.Address, a.Address)
		}
	}
	return fact
}

func (p *Page) leases(ctx context.Context) (all []LeaseFact, err error) {
	err = pages(func(from string) (string, error) {
		list, err := p.config.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx,
			metav1.ListOptions{Limit: pageOfOthers, Continue: from})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			all = append(all, leaseFact(&list.Items[i]))
		}
		return list.Continue, nil
	})
	return all, err
}

func leaseFact(l *coordinationv1.Lease) LeaseFact {
	fact := LeaseFact{
		Name: edge.NodeName(l.Name),
		Delegated: l.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn ||
			l.Labels[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn,
		RelayedBy: edge.ParseRelayed(short(l.Annotations[edge.AnnotationRelayedBy])).By,
	}
	if l.Spec.RenewTime != nil {
		fact.Renewed = l.Spec.RenewTime.Time
	}
	if line, ok := edge.ParseLine(l.Annotations[edge.AnnotationLine]); ok {
		fact.Line = &line
	}
	if traffic, ok := edge.ParseTraffic(l.Annotations[edge.AnnotationTraffic]); ok {
		fact.Traffic = &traffic
	}
	if kubelet, ok := edge.ParseKubeletServing(l.Annotations[edge.AnnotationKubelet]); ok {
		fact.Kubelet = kubelet.Way
	}
	if hub := l.Annotations[edge.AnnotationHubVersion]; edge.IsVersion(hub) {
		fact.Hub = hub
	}
	return fact
}

func (p *Page) pods(ctx context.Context) (all []Pod, err error) {
	err = pages(func(from string) (string, error) {
		raw, err := p.config.Client.CoreV1().RESTClient().Get().Resource("pods").SetHeader("Accept", asTable).
			Param("limit", strconv.Itoa(pageOfPods)).Param("continue", from).DoRaw(ctx)
		if err != nil {
			return "", err
		}
		some, next, err := podsIn(raw)
		all = append(all, some...)
		return next, err
	})
	return all, err
}

// table is what is read of a metav1.Table of Pods.
type table struct {
	Metadata          struct{ Continue string }
	ColumnDefinitions []struct{ Name string }
	Rows              []struct {
		Cells  []any
		Object struct{ Metadata struct{ Namespace string } }
	}
}

// podsIn reads a table, and returns where its next page begins.
func podsIn(raw []byte) (pods []Pod, next string, err error) {
	var t table
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, "", err
	}
	column := map[string]int{}
	for i, c := range t.ColumnDefinitions {
		column[c.Name] = i
	}
	for _, r := range t.Rows {
		cell := func(name string) string {
			if i, ok := column[name]; ok && i < len(r.Cells) && r.Cells[i] != nil && r.Cells[i] != "<none>" {
				return strings.Clone(short(fmt.Sprint(r.Cells[i])))
			}
			return ""
		}
		pods = append(pods, Pod{
			Namespace: strings.Clone(r.Object.Metadata.Namespace), Name: cell("Name"), Ready: cell("Ready"),
			Status:   cell("Status"),
			Restarts: cell("Restarts"), Age: cell("Age"), IP: cell("IP"), Node: edge.NodeName(cell("Node")),
		})
	}
	return pods, t.Metadata.Continue, nil
}

func (p *Page) events(ctx context.Context) (all []Event, err error) {
	err = pages(func(from string) (string, error) {
		list, err := p.config.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx,
			metav1.ListOptions{Limit: pageOfOthers, Continue: from})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			all = append(all, event(&list.Items[i]))
		}
		all = newest(all)
		return list.Continue, nil
	})
	return all, err
}

// newest returns the newest Events, the newest first.
func newest(all []Event) []Event {
	slices.SortStableFunc(all, func(a, b Event) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxEvents)]
}

func event(e *corev1.Event) Event {
	about := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
	if e.InvolvedObject.Namespace != "" {
		about = e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
	}
	from := cmp.Or(e.Source.Component, e.ReportingController)
	if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
		from += " on " + host
	}
	shown := Event{
		Warning: e.Type == corev1.EventTypeWarning, Reason: short(e.Reason), Message: short(e.Message), About: short(about),
		From: short(from), Count: max(1, int(e.Count)), At: e.CreationTimestamp.Time,
	}
	later := func(t time.Time) {
		if t.After(shown.At) {
			shown.At = t
		}
	}
	later(e.FirstTimestamp.Time)
	later(e.LastTimestamp.Time)
	later(e.EventTime.Time)
	if e.Series != nil {
		shown.Count = max(shown.Count, int(e.Series.Count))
		later(e.Series.LastObservedTime.Time)
	}
	return shown
}

// short bounds a text.
func short(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
