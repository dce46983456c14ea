package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

const (
	// patience is the longest pause before the hub asks again, if the cloud has not let it read the ConfigMap for ForgetAfter.
	// Such a cloud may have no coordinator-controller.
	patience = 10 * time.Minute
	// callTimeout bounds one request.
	callTimeout = 10 * time.Second
	// lookPause is the time between two looks at Config.Program: join may prepare a running hub's node for upgrades.
	lookPause = 15 * time.Second
	// reportMin and reportMax bound the pauses between tries to write the report.
	reportMin, reportMax = time.Second, time.Minute
)

// Config is what Settings needs. All fields are required.
type Config struct {
	Node edge.NodeName
	Pool edge.PoolName
	// ConfigMaps are the cloud's in edge.NamespaceSystem, and Nodes the cloud's, as the node sees them.
	ConfigMaps corev1client.ConfigMapInterface
	Nodes      corev1client.NodeInterface
	// Dir is where File is kept.
	Dir string
	// Reachable waits until the cloud can be reached, or ctx ends.
	Reachable func(ctx context.Context) error
	// Program returns what the hub reports of its program, also on its Node. It is called from time to time.
	Program func() edge.HubProgram
	// Started is the report with which the hub has started, from what Recall returned.
	Started edge.SettingsReport
	// Usable returns an error if the hub can't run with some settings. It changes nothing.
	Usable func(v1alpha1.HubSettings) error
	// Take makes the hub run with settings, and returns the names of those that take effect when the hub starts again.
	Take    func(v1alpha1.HubSettings) (restart []string, err error)
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Settings follows what the pool says. Make one with New.
type Settings struct {
	cfg    Config
	notice *Notice[Said]
	report *live.Value[edge.SettingsReport]
	// due is true once the pool's settings are known: from then on each change is reported to the cloud.
	due *live.Value[bool]
}

// New returns Settings that know what Recall returns.
func New(c Config) *Settings {
	s := &Settings{cfg: c, report: live.NewValue(c.Started), due: live.NewValue(c.Started != edge.SettingsReport{})}
	s.notice = NewNotice(NoticeConfig[Said]{
		About: "the pool's settings", Name: c.Pool.SettingsConfigMap(), ConfigMaps: c.ConfigMaps,
		Path: filepath.Join(c.Dir, File), Reachable: c.Reachable, Patience: patience,
		Read:   func(m *corev1.ConfigMap) (Said, error) { return Read(m.Data, c.Usable) },
		Recall: func(content []byte) (Said, error) { return recall(c.Pool, content) },
		Encode: func(said Said) ([]byte, error) { return encode(c.Pool, said) },
		Heard:  s.heard, Unusable: s.refused, Ends: c.Ends,
	})
	gauge := func(name, help, label string, values map[string]func(edge.SettingsReport) float64) {
		for value, of := range values {
			promauto.With(c.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
				Name: name, Help: help, ConstLabels: prometheus.Labels{label: value},
			}, func() float64 { return of(s.report.Get()) })
		}
	}
	gauge("yurthub_settings_generation",
		"Generation of the pool's settings that the hub was told, and that it runs with; 0 means none",
		"of", map[string]func(edge.SettingsReport) float64{
			"told":    func(r edge.SettingsReport) float64 { return float64(r.Told) },
			"running": func(r edge.SettingsReport) float64 { return float64(r.Runs) },
		})
	is := func(state edge.SettingsState) func(edge.SettingsReport) float64 {
		return func(r edge.SettingsReport) float64 {
			if r.State == state {
				return 1
			}
			return 0
		}
	}
	gauge("yurthub_settings_not_taken",
		"1 while the hub does not run with its pool's newest settings, by the reason: restart, refused",
		"reason", map[string]func(edge.SettingsReport) float64{
			string(edge.SettingsNeedRestart): is(edge.SettingsNeedRestart),
			string(edge.SettingsRefused):     is(edge.SettingsRefused),
		})
	return s
}

// Report returns the hub's report about its pool's settings.
func (s *Settings) Report() edge.SettingsReport { return s.report.Get() }

// Run follows and reports until ctx ends.
func (s *Settings) Run(ctx context.Context) error {
	var g run.Group
	g.Add("what the pool says", s.notice.Run)
	g.Add("the report", s.annotate)
	return g.Run(ctx)
}

// heard applies settings from the cloud, which Read has found usable.
func (s *Settings) heard(ctx context.Context, was, is Said) {
	log := klog.FromContext(ctx).WithValues("generation", is.Generation)
	settings, unknown, err := is.Settings()
	var restart []string
	if err == nil {
		restart, err = s.cfg.Take(settings)
	}
	if err != nil { // the node's own settings have changed since Read looked
		s.refused(&refusal{is.Generation, err})
		return
	}
	before := s.report.Get()
	report := edge.SettingsReport{Runs: is.Generation, Told: is.Generation}
	switch {
	case len(restart) > 0:
		report = edge.SettingsReport{Runs: before.Runs, Told: is.Generation, State: edge.SettingsNeedRestart,
			Why: strings.Join(restart, ", ")}
	case unknown != "":
		report.Why = "this yurthub does not know: " + unknown
	}
	s.due.Set(true)
	if s.report.Set(report); was != is || before.State != report.State {
		log.Info("The pool's settings", "was", was.Generation, "state", report.State, "why", report.Why)
	}
}

// refused records that the cloud's settings cannot be used.
func (s *Settings) refused(why error) {
	var r *refusal
	report := edge.SettingsReport{Runs: s.report.Get().Runs, State: edge.SettingsRefused, Why: why.Error()}
	if errors.As(why, &r) {
		report.Told = r.generation
	}
	s.due.Set(true)
	s.report.Set(report)
}

// annotate keeps the Node's annotations as the report and the program say, until ctx ends.
func (s *Settings) annotate(ctx context.Context) error {
	if _, err := s.due.Wait(ctx, func(due bool) bool { return due }); err != nil {
		return nil //nolint:nilerr // it ends
	}
	pauses := run.Backoff{Min: reportMin, Max: reportMax}
	for ctx.Err() == nil {
		report, changed := s.report.Watch()
		program := s.cfg.Program()
		err := s.cfg.Reachable(ctx)
		if err == nil {
			err = s.write(ctx, report, program)
		}
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Cannot tell the cloud which settings this hub runs with", "err", err)
			_ = run.Pause(ctx, pauses.Next(s.cfg.Ends.Float64())) // the loop sees whether it is over
			continue
		}
		pauses.Reset()
		s.news(ctx, changed, program)
	}
	return nil
}

// news waits until there is something else to tell, or ctx ends.
func (s *Settings) news(ctx context.Context, changed <-chan struct{}, program edge.HubProgram) {
	ticks := time.NewTicker(lookPause)
	defer ticks.Stop()
	for s.cfg.Program() == program {
		select {
		case <-changed:
			return
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// write writes the annotations. That of the settings is removed if there is nothing to report.
func (s *Settings) write(ctx context.Context, report edge.SettingsReport, program edge.HubProgram) error {
	var value *string
	if report != (edge.SettingsReport{}) {
		text := report.String()
		value = &text
	}
	is := program.String()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]*string{edge.AnnotationSettings: value, edge.AnnotationProgram: &is},
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err = s.cfg.Nodes.Patch(ctx, string(s.cfg.Node), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotate Node %s: %w", s.cfg.Node, err)
	}
	return nil
}
