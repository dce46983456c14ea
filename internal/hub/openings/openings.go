package openings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

const (
	// askEvery is how often the leader asks for news, on the LAN.
	askEvery = 10 * time.Second
	// callTimeout bounds one request.
	callTimeout = 10 * time.Second
	// backoffMin and backoffMax bound the pause after a failure.
	backoffMin, backoffMax = 2 * time.Second, 2 * time.Minute
	// tellEvery and tellBurst bound the Events that the cloud gets.
	tellEvery, tellBurst = time.Second, 20
	// maxAnswer bounds a coordinator's answer, in bytes: 16 openings of 2 KB at most.
	maxAnswer = 64 << 10
)

// instances is what a coordinator may call itself: it gets into the names of Events.
var instances = regexp.MustCompile(`^[0-9a-z]{16,40}$`)

// Config says who tells. All fields are required.
type Config struct {
	Node edge.NodeName
	Pool edge.PoolName
	// Coordinator reaches the coordinator as this node.
	Coordinator rest.Interface
	// Events are the cloud's Events in the namespace default, as this node may write them.
	Events corev1client.EventInterface
	// About returns what the Events are about.
	About func() corev1.ObjectReference
	// Metrics takes the metrics.
	Metrics prometheus.Registerer
}

// Teller tells, for one term at a time.
type Teller struct {
	cfg   Config
	limit *rate.Limiter
	told  *prometheus.CounterVec
}

// The results of telling, as the metric has them.
const (
	told    = "told"
	before  = "told-before"
	refused = "refused"
)

// New returns a Teller.
func New(cfg Config) *Teller {
	t := &Teller{
		cfg: cfg, limit: rate.NewLimiter(rate.Every(tellEvery), tellBurst),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_openings_told_total",
			Help: "Events by which this hub, as the leader, told the cloud who opened what at the coordinator, by result.",
		}, []string{"result"}),
	}
	for _, result := range []string{told, before, refused} {
		t.told.WithLabelValues(result)
	}
	cfg.Metrics.MustRegister(t.told)
	return t
}

// Run tells for one term, until ctx ends; then it returns nil. It must not run twice at a time.
func (t *Teller) Run(ctx context.Context, term edge.Term) error {
	pauses := run.Backoff{Min: backoffMin, Max: backoffMax}
	said := edge.OpeningsRequest{Term: term.Transitions}
	for ctx.Err() == nil {
		news, err := t.round(ctx, term, &said)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			klog.FromContext(ctx).V(1).Info("Cannot tell the cloud who opened what at the coordinator yet; trying again",
				"err", err)
			_ = run.Pause(ctx, pauses.Next())
		case news:
			pauses.Reset()
		default:
			pauses.Reset()
			_ = run.Pause(ctx, askEvery*3/4+rand.N(askEvery/4))
		}
	}
	return nil
}

// round says what was told, asks for what is to be told, and tells it. It reports whether there was any. What it has told before
// it fails stays in said, for the next round to say.
func (t *Teller) round(ctx context.Context, term edge.Term, said *edge.OpeningsRequest) (news bool, err error) {
	answer, err := t.ask(ctx, *said)
	if err != nil {
		return false, fmt.Errorf("ask the coordinator who opened what: %w", err)
	}
	said.Instance, said.Told = answer.Instance, nil
	by := teller{node: t.cfg.Node, pool: t.cfg.Pool, about: t.cfg.About(), instance: answer.Instance}
	for _, o := range answer.Openings {
		if err := t.limit.Wait(ctx); err != nil {
			return true, err
		}
		if !term.Valid() {
			return true, errors.New("the term is over")
		}
		if err := t.tell(ctx, by, o); err != nil {
			return true, err
		}
		said.Told = append(said.Told, o.Number)
	}
	return len(answer.Openings) > 0, nil
}

// ask says what was told, and returns what is to be told.
func (t *Teller) ask(ctx context.Context, said edge.OpeningsRequest) (*edge.OpeningsAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(said)
	if err != nil {
		return nil, err
	}
	stream, err := t.cfg.Coordinator.Post().AbsPath(edge.PathOpenings).SetHeader("Content-Type", "application/json").
		Body(body).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	answer := &edge.OpeningsAnswer{}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("the answer is not what a coordinator says: %w", err)
	}
	if !instances.MatchString(answer.Instance) {
		return nil, fmt.Errorf("%.50q is no name of a coordinator's instance", answer.Instance)
	}
	return answer, nil
}

// tell writes one Event. It returns an error if that should be tried again.
func (t *Teller) tell(ctx context.Context, by teller, o edge.Opening) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	event, err := by.event(o)
	if err == nil {
		_, err = t.cfg.Events.Create(ctx, event, metav1.CreateOptions{})
	} else {
		err = apierrors.NewBadRequest(err.Error())
	}
	switch {
	case err == nil:
		t.told.WithLabelValues(told).Inc()
	case apierrors.IsAlreadyExists(err): // this leader, or one before it, told it and could not say so
		t.told.WithLabelValues(before).Inc()
	case neverTaken(err):
		t.told.WithLabelValues(refused).Inc()
		klog.FromContext(ctx).Error(err, "The cloud takes no Event of an opening; it is only here",
			"act", o.Act, "number", o.Number, "user", plain(o.User), "stream", plain(o.Stream),
			"pod", plain(o.Namespace)+"/"+plain(o.Pod), "at", stamp(o.First))
	default:
		return fmt.Errorf("tell of opening %d: %w", o.Number, err)
	}
	return nil
}

// neverTaken reports whether an Event itself is what the cloud refuses. A missing right may be given.
func neverTaken(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return true
	}
	return false
}
