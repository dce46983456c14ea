package openings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

const (
	// component writes these Events.
	component = "yurthub"

	// The reasons of the Events.
	reasonBegan   = "CoordinatorBegan"
	reasonOpened  = "PodOpened"
	reasonEnded   = "PodOpeningEnded"
	reasonRefused = "PodOpeningRefused"

	// maxText bounds what is quoted of each text that the coordinator says, in bytes. The coordinator cuts them at 200.
	maxText = 256
)

// teller is who tells, of which pool's coordinator.
type teller struct {
	node edge.NodeName
	pool edge.PoolName
	// about is what the Events are about.
	about corev1.ObjectReference
	// instance is the coordinator's.
	instance string
}

// event returns what the cloud is to hear of an opening. For the same opening it is the same, but for who tells.
func (t teller) event(o edge.Opening) (*corev1.Event, error) {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, // where Events about objects without a namespace are
			Name:      fmt.Sprintf("yurt-coordinator-%s.%s.%d", t.pool, t.instance, o.Number),
			Labels:    map[string]string{edge.LabelNodePool: string(t.pool)},
		},
		InvolvedObject: t.about, Type: corev1.EventTypeNormal, Count: int32(min(max(o.Count, 1), 1<<30)),
		FirstTimestamp: metav1.NewTime(o.First), LastTimestamp: metav1.NewTime(o.Last),
		Source:              corev1.EventSource{Component: component, Host: string(t.node)},
		ReportingController: component, ReportingInstance: string(t.node),
	}
	if o.Pod != "" {
		e.Related = &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: plain(o.Namespace), Name: plain(o.Pod)}
	}
	switch o.Act {
	case edge.ActBegan:
		e.Reason = reasonBegan
		e.Message = "The pool's coordinator began at " + stamp(o.First) +
			". What the one before it had not told yet of who opened what is lost"
	case edge.ActOpened:
		e.Reason = reasonOpened
		e.Message = fmt.Sprintf("%s opened %s%s%s%s", who(o), what(o), times(o), over(o), by(o))
	case edge.ActEnded:
		e.Reason = reasonEnded
		e.Message = fmt.Sprintf("%s: %s, opened at %s, ended at %s%s", who(o), what(o), stamp(o.First), stamp(o.Last), by(o))
		if o.Of != 0 {
			e.Message += fmt.Sprintf("; it was told in %s.%d", t.instance, o.Of)
		}
	case edge.ActRefused:
		e.Reason, e.Type = reasonRefused, corev1.EventTypeWarning
		e.Message = fmt.Sprintf("%s was refused %s%s", who(o), what(o), times(o))
		if o.Reason != "" {
			e.Message += ": " + plain(o.Reason)
		}
		e.Message += by(o)
	default:
		return nil, fmt.Errorf("the coordinator tells of %q, which this hub does not know", o.Act)
	}
	return e, nil
}

// who names the user, with the groups.
func who(o edge.Opening) string {
	switch {
	case o.User == "":
		return "Somebody, of too many to name,"
	case o.Groups == "":
		return plain(o.User)
	}
	return fmt.Sprintf("%s (%s)", plain(o.User), plain(o.Groups))
}

// what names the stream, and into what.
func what(o edge.Opening) string {
	if o.Pod == "" {
		return "streams into Pods, too many to name"
	}
	text := plain(o.Stream)
	if o.Program != "" {
		text += " of " + plain(o.Program)
	}
	text += fmt.Sprintf(" in Pod %s/%s", plain(o.Namespace), plain(o.Pod))
	if o.Container != "" {
		text += ", container " + plain(o.Container)
	}
	return text
}

func times(o edge.Opening) string {
	if o.Count > 1 {
		return fmt.Sprintf(", %d times from %s to %s", o.Count, stamp(o.First), stamp(o.Last))
	}
	return " at " + stamp(o.First)
}

// over says how many of those that were opened have ended.
func over(o edge.Opening) string {
	switch {
	case o.Over == 0 || o.End == nil:
		return ", still open then"
	case o.Over < o.Count:
		return fmt.Sprintf(", %d still open then", o.Count-o.Over)
	}
	return ", ended at " + stamp(*o.End)
}

// by says from where, and with which certificate.
func by(o edge.Opening) string {
	text := ""
	if o.Source != "" {
		text += "; from " + plain(o.Source)
	}
	if o.Certificate != "" {
		text += fmt.Sprintf("; certificate %s, serial %s", plain(o.Certificate), plain(o.Serial))
	}
	return text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// plain returns a text that stays within its line and its bounds: as it is if it has letters, signs and single spaces only.
func plain(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	odd := func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) || r == unicode.ReplacementChar }
	if strings.ContainsFunc(s, odd) || strings.TrimSpace(s) != s {
		return strconv.QuoteToGraphic(s)
	}
	return s
}
