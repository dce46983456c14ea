package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"yurtcoordinator/internal/edge"
)

// etcdAddress is where the cloud's etcd serves, and etcdEventsAddress where that of its Events does, only for the cloud's own
// machine.
const etcdAddress, etcdEventsAddress = "127.0.0.1:2379", "127.0.0.1:2381"

// Compact makes the cloud's etcd forget all history before its present revision, and returns that revision. The etcd of the
// cloud's Events, if it has one, does the same. kube-apiserver answers from its own watch cache as long as it can, so it still
// knows what etcd has forgotten. After its restart (Cloud(ctx, Restart, KubeAPIServer)) every watch that has not seen the newest
// change must start again (410).
func (c *Client) Compact(ctx context.Context) (edge.Revision, error) {
	cfg, err := c.Config()
	if err != nil {
		return 0, err
	}
	if cfg.EventsApart {
		if _, err := c.compact(ctx, etcdEventsAddress); err != nil {
			return 0, err
		}
	}
	return c.compact(ctx, etcdAddress)
}

func (c *Client) compact(ctx context.Context, etcd string) (edge.Revision, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.Dial(ctx, cloudMachine, etcd)
		},
	}}
	// etcd's gateway speaks JSON, with 64-bit numbers as strings. Any read returns the present revision.
	var read struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := askEtcd(ctx, &client, "range", map[string]any{"key": []byte{0}}, &read); err != nil {
		return 0, err
	}
	now, err := strconv.ParseUint(read.Header.Revision, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("revision of the cloud's etcd: %w", err)
	}
	compact := map[string]any{"revision": read.Header.Revision, "physical": true}
	return edge.Revision(now), askEtcd(ctx, &client, "compaction", compact, nil)
}

func askEtcd(ctx context.Context, client *http.Client, verb string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+etcdAddress+"/v3/kv/"+verb,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the cloud's etcd: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("the cloud's etcd: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the cloud's etcd: %s: %s: %s", verb, resp.Status, bytes.TrimSpace(answer))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
