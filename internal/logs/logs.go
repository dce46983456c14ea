// Package logs says how our programs log: in Kubernetes' own forms, text or JSON, and how much.
//
// Several libraries log in a program: klog, with a logger of its own or without, log/slog, and log. Start makes all of them write
// in one form, to stderr, by Kubernetes' own library k8s.io/component-base/logs. The feature gates of that library would let a
// program split or buffer its log. Our programs give it no feature gates. So each line is in one stream, complete, when the call
// returns.
//
// Invariant: no program logs the body of a request or of an answer, whatever -v says. Kubernetes' clients log bodies from level 8
// on, and a body may be a Secret or a token. So Most is the highest level. At that level the clients log headers, without the
// content of the header Authorization.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// Forms of a log.
const (
	Text = logsapi.DefaultLogFormat
	JSON = logsapi.JSONLogFormat
)

// Flags of Settings.
const (
	FormatFlag    = "logging-format"
	VerbosityFlag = "v"
)

// Most is the most that programs log: a larger -v is taken as this.
const Most = 7

// QuietBelow is the level below which Kubernetes' own code logs nothing but errors: see OnlyErrors.
const QuietBelow = 2

// Settings say how a program logs. AddFlags sets the defaults; the zero Settings have an empty Format, which is no form.
type Settings struct {
	// Format is Text or JSON.
	Format string
	// Verbosity is how much is logged: errors and changes at 0, more with each level up to Most.
	Verbosity logsapi.VerbosityLevel
}

// AddFlags declares the settings as flags and sets their defaults.
func (s *Settings) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Format, FormatFlag, Text, "form of the log: text or json, each as Kubernetes' own programs have it")
	addVerbosity(&s.Verbosity, fs)
}

func addVerbosity(v *logsapi.VerbosityLevel, fs *pflag.FlagSet) {
	fs.VarP(logsapi.VerbosityLevelPflag(v), VerbosityFlag, "v",
		fmt.Sprintf("how much to log, 0 to %d; more counts as %d, because Kubernetes' clients would log Secrets", Most, Most))
}

// VerbosityFlagOf adds -v alone, for a command that a person uses. It returns the flag's value, for SetVerbosity. Such a
// command does not call Start, so it logs as klog does by itself: as text, to stderr.
func VerbosityFlagOf(fs *pflag.FlagSet) *logsapi.VerbosityLevel {
	var v logsapi.VerbosityLevel
	addVerbosity(&v, fs)
	return &v
}

// Validate returns an error, one line that names the flag, if a program can't log so.
func (s Settings) Validate() error {
	if s.Format != Text && s.Format != JSON {
		return fmt.Errorf("--%s %q: want %s or %s", FormatFlag, s.Format, Text, JSON)
	}
	return nil
}

// bounded returns a level that shows no body.
func bounded(v logsapi.VerbosityLevel) logsapi.VerbosityLevel { return min(v, Most) }

// configuration returns s as component-base has it.
func (s Settings) configuration() *logsapi.LoggingConfiguration {
	c := logsapi.NewLoggingConfiguration()
	c.Format, c.Verbosity = s.Format, bounded(s.Verbosity)
	return c
}

// Start has the whole program log as s says, and returns the logger. A program calls it once, before it starts a goroutine.
func (s Settings) Start() (klog.Logger, error) {
	if err := s.Validate(); err != nil {
		return klog.Logger{}, err
	}
	if err := logsapi.ValidateAndApply(s.configuration(), nil); err != nil {
		return klog.Logger{}, fmt.Errorf("set up the log: %w", err)
	}
	log := klog.Background()
	if s.Verbosity > Most {
		log.Info("More is not logged: Kubernetes' clients would log Secrets", "asked", s.Verbosity, "verbosity", Most)
	}
	return log, nil
}

// SetVerbosity changes how much a running program logs.
func SetVerbosity(v logsapi.VerbosityLevel) error {
	if _, err := logs.GlogSetter(strconv.Itoa(int(bounded(v)))); err != nil {
		return fmt.Errorf("--%s: %w", VerbosityFlag, err)
	}
	return nil
}

// Tell prints why a program ends, in the form of its log: as a line of JSON, or as a line for a person. If the program could
// not parse args completely, s may lack their settings. So Tell looks for the form in args as well.
func (s Settings) Tell(w io.Writer, program string, args []string, err error) {
	if s.Format != JSON && formatIn(args) != JSON {
		fmt.Fprintf(Visible(w), "%s: %v\n", program, err)
		return
	}
	log, _ := jsonFormat{}.Create(*Settings{Format: JSON}.configuration(), logsapi.LoggingOptions{ErrorStream: w})
	log.WithCallDepth(1).Error(err, program+" ends")
}

// formatIn returns the form that a command line names, whatever else it says.
func formatIn(args []string) string {
	var s Settings
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.Usage = func() {}
	s.AddFlags(fs)
	_ = fs.Parse(args) // up to what is wrong in it
	return s.Format
}

// OnlyErrors makes all code that has no logger of its own, which is Kubernetes' code, log only errors, if the verbosity in s is
// below QuietBelow. What is logged through the given logger stays as it is. A program calls OnlyErrors after Start.
func (s Settings) OnlyErrors(log klog.Logger) {
	if s.Verbosity < QuietBelow {
		klog.SetLoggerWithOptions(logr.New(errorsOnly{log.GetSink()}), klog.ContextualLogger(true))
	}
}

// errorsOnly is a LogSink that drops everything but errors. It also drops the error context.Canceled, which a reflector logs if
// its program ends while the reflector asks for a watch.
type errorsOnly struct{ logr.LogSink }

// Init implements logr.LogSink. The sink within has been told already; a second time it would name callers wrongly.
func (errorsOnly) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (errorsOnly) Enabled(int) bool { return false }

// Info implements logr.LogSink. klog's own functions call it without asking whether it is enabled.
func (errorsOnly) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (e errorsOnly) Error(err error, msg string, keysAndValues ...any) {
	if errors.Is(err, context.Canceled) {
		return
	}
	sink := e.LogSink
	if deeper, ok := sink.(logr.CallDepthLogSink); ok {
		sink = deeper.WithCallDepth(1)
	}
	sink.Error(err, msg, keysAndValues...)
}

// WithValues implements logr.LogSink.
func (e errorsOnly) WithValues(keysAndValues ...any) logr.LogSink {
	return errorsOnly{e.LogSink.WithValues(keysAndValues...)}
}

// WithName implements logr.LogSink.
func (e errorsOnly) WithName(name string) logr.LogSink { return errorsOnly{e.LogSink.WithName(name)} }

// WithCallDepth implements logr.CallDepthLogSink.
func (e errorsOnly) WithCallDepth(depth int) logr.LogSink {
	if deeper, ok := e.LogSink.(logr.CallDepthLogSink); ok {
		return errorsOnly{deeper.WithCallDepth(depth)}
	}
	return e
}
