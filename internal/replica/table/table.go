// Package table has the columns that kubectl shows of the resources of a pool. It is pure.
//
// The columns and cells equal those of an API server, so that an operator sees no difference; whatever has no set of its
// own has its name and its time of creation, which is what an API server shows of what it has no columns for.
//
// Rejected: k8s.io/kubernetes/pkg/printers, which shows everything and brings most of Kubernetes with it.
package table

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

// shown is the number of addresses or ports that a cell lists before it counts the rest.
const shown = 3

// Columns are the columns of one kind.
type Columns struct {
	// Definitions are the heads.
	Definitions []metav1.TableColumnDefinition
	// Decoded says that Cells wants the object, not only its metadata.
	Decoded bool
	// Cells returns an object's row. o may be nil unless Decoded; now is what ages are counted to.
	Cells func(m *metav1.ObjectMeta, o runtime.Object, now time.Time) ([]any, error)
}

// Known reports whether objects of a kind have more columns than name and time.
func Known(kind schema.GroupVersionKind) bool {
	_, ok := known[kind]
	return ok
}

// For returns the columns of a kind.
func For(kind schema.GroupVersionKind) *Columns {
	if c, ok := known[kind]; ok {
		return c
	}
	return generic
}

var (
	metadataDoc = metav1.ObjectMeta{}.SwaggerDoc()
	sliceDoc    = discoveryv1.EndpointSlice{}.SwaggerDoc()
	serviceDoc  = corev1.ServiceSpec{}.SwaggerDoc()

	nameColumn = metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: metadataDoc["name"]}
	ageColumn  = text("Age", metadataDoc["creationTimestamp"])
)

func text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

func wide(c metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	c.Priority = 1
	return c
}

var generic = &Columns{
	Definitions: []metav1.TableColumnDefinition{
		nameColumn,
		{Name: "Created At", Type: "date", Description: metadataDoc["creationTimestamp"]},
	},
	Cells: func(m *metav1.ObjectMeta, _ runtime.Object, _ time.Time) ([]any, error) {
		return []any{m.Name, m.CreationTimestamp.UTC().Format(time.RFC3339)}, nil
	},
}

var known = map[schema.GroupVersionKind]*Columns{
	discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"): columns(
		func(s *discoveryv1.EndpointSlice) []any {
			return []any{string(s.AddressType), slicePorts(s.Ports), sliceAddresses(s.Endpoints)}
		},
		text("AddressType", sliceDoc["addressType"]),
		text("Ports", sliceDoc["ports"]),
		text("Endpoints", sliceDoc["endpoints"])),

	corev1.SchemeGroupVersion.WithKind("Endpoints"): columns(
		func(e *corev1.Endpoints) []any { return []any{subsets(e.Subsets)} },
		text("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"])),

	corev1.SchemeGroupVersion.WithKind("Service"): columns(
		func(s *corev1.Service) []any {
			return []any{
				string(s.Spec.Type), clusterIP(s), externalIP(s), servicePorts(s.Spec.Ports),
				labels.FormatLabels(s.Spec.Selector),
			}
		},
		text("Type", serviceDoc["type"]),
		text("Cluster-IP", serviceDoc["clusterIP"]),
		text("External-IP", serviceDoc["externalIPs"]),
		text("Port(s)", serviceDoc["ports"]),
		wide(text("Selector", serviceDoc["selector"]))),
}

// columns makes a set of a name, what is said of the kind, and the age, which stands before the columns that only a wide
// table has.
func columns[T any](middle func(T) []any, heads ...metav1.TableColumnDefinition) *Columns {
	at := slices.IndexFunc(heads, func(h metav1.TableColumnDefinition) bool { return h.Priority > 0 })
	if at < 0 {
		at = len(heads)
	}
	definitions := append([]metav1.TableColumnDefinition{nameColumn}, heads...)
	return &Columns{
		Definitions: slices.Insert(definitions, 1+at, ageColumn),
		Decoded:     true,
		Cells: func(m *metav1.ObjectMeta, o runtime.Object, now time.Time) ([]any, error) {
			typed, ok := o.(T)
			if !ok {
				return nil, fmt.Errorf("a row of %T was wanted of a %T", typed, o)
			}
			cells := append([]any{m.Name}, middle(typed)...)
			return slices.Insert(cells, 1+at, any(age(m.CreationTimestamp, now))), nil
		},
	}
}

func age(created metav1.Time, now time.Time) string {
	if created.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(created.Time))
}

// few joins the first elements of a list and says how many more there are.
func few(all []string) string {
	if len(all) <= shown {
		return strings.Join(all, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(all[:shown], ","), len(all)-shown)
}

func slicePorts(ports []discoveryv1.EndpointPort) string {
	all := make([]string, 0, len(ports))
	for _, p := range ports {
		switch {
		case p.Port != nil:
			all = append(all, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			all = append(all, *p.Name)
		default:
			all = append(all, "*")
		}
	}
	return unset(few(all))
}

func sliceAddresses(endpoints []discoveryv1.Endpoint) string {
	var all []string
	for i := range endpoints {
		all = append(all, endpoints[i].Addresses...)
	}
	return unset(few(all))
}

func unset(s string) string {
	if s == "" {
		return "<unset>"
	}
	return s
}

func subsets(all []corev1.EndpointSubset) string {
	if len(all) == 0 {
		return "<none>"
	}
	var addresses []string
	for i := range all {
		s := &all[i]
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				addresses = append(addresses, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				addresses = append(addresses, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return few(addresses)
}

func clusterIP(s *corev1.Service) string {
	if len(s.Spec.ClusterIPs) == 0 {
		return "<none>"
	}
	return s.Spec.ClusterIPs[0]
}

func externalIP(s *corev1.Service) string {
	given := strings.Join(s.Spec.ExternalIPs, ",")
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		if given == "" {
			return "<none>"
		}
		return given
	case corev1.ServiceTypeLoadBalancer:
		var all []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			switch {
			case in.IP != "":
				all = append(all, in.IP)
			case in.Hostname != "":
				all = append(all, in.Hostname)
			}
		}
		slices.Sort(all)
		all = append(slices.Compact(all), s.Spec.ExternalIPs...)
		if len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	default:
		return "<unknown>"
	}
}

func servicePorts(ports []corev1.ServicePort) string {
	if len(ports) == 0 {
		return "<none>"
	}
	all := make([]string, 0, len(ports))
	for _, p := range ports {
		number := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			number += ":" + strconv.Itoa(int(p.NodePort))
		}
		all = append(all, number+"/"+string(p.Protocol))
	}
	return strings.Join(all, ",")
}
