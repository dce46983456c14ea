package logs

import (
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	logsapi "k8s.io/component-base/logs/api/v1"
	logsjson "k8s.io/component-base/logs/json"
)

// jsonFormat is Kubernetes' own log format json, with the same fields. Kubernetes' own factory logs every time value, such as
// the end of a certificate, as the present time; encodeTime corrects that.
type jsonFormat struct{}

func init() {
	if err := logsapi.RegisterLogFormat(JSON, jsonFormat{}, logsapi.LoggingBetaOptions); err != nil {
		panic(err) // the name is given twice in this program
	}
}

// Create implements logsapi.LogFormatFactory. Everything goes to one stream, unbuffered.
func (jsonFormat) Create(c logsapi.LoggingConfiguration, o logsapi.LoggingOptions) (logr.Logger, logsapi.RuntimeControl) {
	return logsjson.NewJSONLogger(c.Verbosity, zapcore.Lock(logsjson.AddNopSync(o.ErrorStream)), nil, &zapcore.EncoderConfig{
		MessageKey: "msg", CallerKey: "caller", NameKey: "logger", TimeKey: "ts",
		EncodeTime: encodeTime, EncodeDuration: zapcore.StringDurationEncoder, EncodeCaller: zapcore.ShortCallerEncoder,
	})
}

// encodeTime writes a time as milliseconds since 1970.
func encodeTime(t time.Time, to zapcore.PrimitiveArrayEncoder) {
	to.AppendFloat64(float64(t.UnixMicro()) / 1000)
}
