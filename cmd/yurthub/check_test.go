package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"yurtcoordinator/internal/hub/check"
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
