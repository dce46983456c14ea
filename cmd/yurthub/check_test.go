package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"yurtcoordinator/internal/hub/check"
	"yurtcoordinator/internal/hub/config"
)

func TestCheckNode(t *testing.T) {
	dir := t.TempDir()
	args := []string{
		"--node-name=n1", "--server-addr=https://127.0.0.1:1", "--bootstrap-file=" + filepath.Join(dir, "token"),
		"--cert-dir=" + filepath.Join(dir, "pki"), "--disk-cache-path=" + filepath.Join(dir, "cache"), "--health-port=1",
	}
	var out bytes.Buffer
	if err := checkNode(append(args, "-o", "json"), &out); !errors.Is(err, errNotWell) {
		t.Errorf("checkNode = %v, want %v", err, errNotWell)
	}
	var report struct {
		OK       bool
		Findings []check.Finding
	}
	// Levels are written by name and not read back.
	if err := json.Unmarshal(bytes.ReplaceAll(out.Bytes(), []byte(`"level"`), []byte(`"by-name"`)), &report); err != nil {
		t.Fatalf("%v in:\n%s", err, out.String())
	}
	if report.OK || len(report.Findings) < 5 || !strings.Contains(out.String(), "refuses connections") {
		t.Errorf("it says:\n%s", out.String())
	}
	if err := checkNode(append(args, "--output=yaml"), &out); err == nil || !strings.Contains(err.Error(), "yaml") {
		t.Errorf("checkNode with --output=yaml = %v", err)
	}
	if err := checkNode([]string{"--help"}, &out); err != nil || !strings.Contains(out.String(), "--joined") {
		t.Errorf("checkNode with --help = %v", err)
	}
	if err := checkNode([]string{"--nod-name=x", "--node-name=x"}, &out); err == nil || !strings.Contains(err.Error(),
		"--nod-name") {
		t.Errorf("checkNode with an unknown flag = %v", err)
	}
}

// TestChecked: what a hub is told, a check is told.
func TestChecked(t *testing.T) {
	c := checked(config.Config{
		Node: "n1", Pool: "p1", EnableCoordinator: true, CoordinatorAddress: "https://c:10270,https://d:10270",
		SecureBindAddress: "10.0.0.1", SecurePort: 10268,
	})
	if c.Node != "n1" || c.Pool != "p1" || strings.Join(c.Coordinators, " ") != "https://c:10270 https://d:10270" ||
		c.SecureAddress != "10.0.0.1" || c.SecurePort != 10268 {
		t.Errorf("%+v", c)
	}
	if c.Invalid == "" {
		t.Error("settings without a server are no settings")
	}
	if c := checked(config.Config{CoordinatorAddress: "https://c:10270"}); len(c.Coordinators) != 0 {
		t.Error("a coordinator that is not to be used is looked at")
	}
}
