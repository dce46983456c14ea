package compare

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// component writes these Events, for this reason.
const (
	component = "yurthub"
	reason    = "PoolResourceLie"
)

// kinds say what a lie is, in a sentence about an object.
var kinds = map[string]string{
	omitted.String():  "is missing at the coordinator, but exists in the cloud",
	invented.String(): "is at the coordinator, but not in the cloud",
	differs.String():  "differs between the coordinator and the cloud",
	ahead.String():    "has a revision at the coordinator that the cloud has not reached",
	withheld.String(): "do not advance at the coordinator, though the leader declares them current",
}

// Event returns what the cloud is to hear of a lie, from this node, about an object that stands for the pool.
func (l Lie) Event(node edge.NodeName, pool edge.PoolName, about corev1.ObjectReference, now time.Time) *corev1.Event {
	what := l.Resource
	if l.Key.Name != "" {
		what += " " + l.Key.String()
	}
	message := fmt.Sprintf("%s %s. Node %s leads the pool and brings it (transitions %d)", what, kinds[l.Kind], l.Leader,
		l.Transitions)
	if len(l.Earlier) > 0 {
		names := make([]string, len(l.Earlier))
		for i, n := range l.Earlier {
			names[i] = string(n)
		}
		message += fmt.Sprintf("; or it is older: since the last check without a fault, %s led, too",
			strings.Join(names, ", "))
	}
	message += fmt.Sprintf(". Node %s compared. See docs/threat-model.md", node)
	const most = 1024 // the API server takes no more
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most-3], "") + "..."
	}
	at := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, // where Events about objects without a namespace are
			Name:      fmt.Sprintf("yurt-coordinator-%s.%s.%x", pool, node, now.UnixNano()),
			Labels:    map[string]string{edge.LabelNodePool: string(pool)},
		},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1,
		FirstTimestamp: at, LastTimestamp: at,
		Source:              corev1.EventSource{Component: component, Host: string(node)},
		ReportingController: component, ReportingInstance: string(node),
	}
}
