package presence

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/run"
)

const (
	// quiet is how long a coordinator may tell nothing: it has a line every 10 s.
	quiet = 30 * time.Second
	// maxLine bounds a line, in bytes: 20,000 Pods of some 250 bytes have room.
	maxLine = 8 << 20
	// backoffMin and backoffMax bound the pause after a failure.
	backoffMin, backoffMax = 100 * time.Millisecond, 5 * time.Second
)

var errQuiet = errors.New("the coordinator tells nothing")

// listen hands on what the coordinator tells, until ctx ends.
func (f *Follower) listen(ctx context.Context, hear func(edge.Presence)) {
	pause, logged := run.Backoff{Min: backoffMin, Max: backoffMax}, ""
	for ctx.Err() == nil {
		if _, err := f.config.CoordinatorLink.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
			return
		}
		err := f.stream(ctx, func(line edge.Presence) {
			pause.Reset()
			hear(line)
		})
		if text := err.Error(); ctx.Err() == nil && text != logged {
			logged = text
			klog.FromContext(ctx).V(1).Info("What the pool says of its Pods is not told now, trying again", "err", err)
		}
		_ = run.Pause(ctx, pause.Next(f.config.Ends.Float64())) // the loop ends with ctx
	}
}

// stream reads one stream, and returns why it has ended.
func (f *Follower) stream(ctx context.Context, hear func(edge.Presence)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silence := time.AfterFunc(quiet, func() { stop(errQuiet) })
	defer silence.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.config.Base.JoinPath(edge.PathPresence).String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	response, err := f.config.Transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // it only explains
		return fmt.Errorf("the coordinator answers %d: %.200q", response.StatusCode, text)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		silence.Reset(quiet)
		var line edge.Presence
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("not what a coordinator says: %w", err)
		}
		hear(line)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}
