package pooltest

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// JSONLines are the lines of a file, each an object; none if there is no such file.
func JSONLines[T any](t testing.TB, file string) []T {
	t.Helper()
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []T
	for _, text := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		var line T
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		lines = append(lines, line)
	}
	return lines
}
