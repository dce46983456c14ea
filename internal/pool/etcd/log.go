package etcd

import (
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zapgrpc"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// verbose is the log level from which on everything that etcd does is logged, not only its warnings.
const verbose = 2

// zapCore has what etcd logs, by zap, logged by log, in the form of the whole program.
type zapCore struct {
	log klog.Logger
	// level says what is logged below the level verbose.
	level zapcore.LevelEnabler
}

var _ zapcore.Core = zapCore{}

// Enabled implements zapcore.LevelEnabler. What etcd says to debug it is never logged.
func (c zapCore) Enabled(level zapcore.Level) bool {
	return c.level.Enabled(level) || level >= zapcore.InfoLevel && c.log.V(verbose).Enabled()
}

// With implements zapcore.Core.
func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	values, _ := keysAndValues(fields)
	return zapCore{log: c.log.WithValues(values...), level: c.level}
}

// Check implements zapcore.Core.
func (c zapCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c zapCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	values, err := keysAndValues(fields)
	switch {
	case entry.Level >= zapcore.ErrorLevel:
		c.log.Error(err, entry.Message, values...)
		return nil
	case err != nil:
		values = append(values, "err", err)
	}
	log := c.log
	if entry.Level < zapcore.WarnLevel {
		log = log.V(verbose)
	}
	log.Info(entry.Message, values...)
	return nil
}

// Sync implements zapcore.Core. Nothing is buffered.
func (zapCore) Sync() error { return nil }

// keysAndValues returns fields as a klog.Logger takes them, and the error among them.
func keysAndValues(fields []zapcore.Field) (values []any, err error) {
	encoded := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		if is, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType && err == nil {
			err = is
			continue
		}
		f.AddTo(encoded)
	}
	for _, key := range slices.Sorted(maps.Keys(encoded.Fields)) {
		values = append(values, key, encoded.Fields[key])
	}
	return values, err
}

// logGRPC makes gRPC, by which kube-apiserver talks to etcd, log its errors in the program's format and not in its own.
var logGRPC = sync.OnceFunc(func() {
	grpclog.SetLoggerV2(zapgrpc.NewLogger(zap.New(zapCore{
		log: klog.LoggerWithName(klog.Background(), "grpc"), level: zapcore.ErrorLevel,
	})))
})
