package views

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/run"
)

const (
	// quiet is how long a coordinator may send nothing: it sends a line every 10 s.
	quiet = 30 * time.Second
	// maxLine bounds a line in bytes: enough for 20,000 Pods of some 250 bytes.
	maxLine = 8 << 20
	// backoffMin and backoffMax bound the pause after a failure.
	backoffMin, backoffMax = 100 * time.Millisecond, 5 * time.Second
)

var (
	errQuiet = errors.New("the coordinator tells nothing")
	errHome  = errors.New("another coordinator is believed about Pods now")
)

// listen passes on the reports of the coordinator in a slot, and whether that is home, until ctx ends.
func (f *Follower) listen(ctx context.Context, slot int, hear func(home bool, line edge.Presence)) {
	from := f.config.Coordinators[slot]
	pause, logged := run.Backoff{Min: backoffMin, Max: backoffMax}, ""
	for ctx.Err() == nil {
		if _, err := from.Link.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
			return
		}
		home := f.config.Home.Get() == slot
		while, stop := f.config.Home.While(ctx, func(at int) bool { return (at == slot) == home }, errHome)
		err := f.stream(while, from, home, func(line edge.Presence) {
			pause.Reset()
			hear(home, line)
		})
		stop()
		if text := err.Error(); ctx.Err() == nil && text != logged {
			logged = text
			klog.FromContext(ctx).V(1).Info("What the pool says of its Pods is not told now, trying again",
				"slot", slot, "err", err)
		}
		_ = run.Pause(ctx, pause.Next(f.config.Ends.Float64())) // the loop ends with ctx
	}
}

// stream reads one stream, about Pods and nodes or only nodes, and returns why it ended.
func (f *Follower) stream(ctx context.Context, from Coordinator, pods bool, hear func(edge.Presence)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silence := time.AfterFunc(quiet, func() { stop(errQuiet) })
	defer silence.Stop()
	at := from.Base.JoinPath(edge.PathPresence)
	if !pods {
		at.RawQuery = url.Values{edge.QueryNodesOnly: {"true"}}.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	response, err := from.Transport.RoundTrip(r)
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
