package main

import (
	"strings"
	"testing"

	"yurtcoordinator/internal/signed"
)

// TestRefused: what can't be is said before anything is built.
func TestRefused(t *testing.T) {
	key, err := signed.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.EncodePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		key  string
		want string
	}{
		{nil, "", keyVariable},
		{nil, "no key", keyVariable},
		{[]string{"--created=yesterday"}, string(text), "--created"},
		{[]string{"--platforms=linux"}, string(text), "--platforms"},
		{[]string{"--key=x"}, string(text), "key"},
	} {
		if err := start(t.Context(), test.args, test.key); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.args, err, test.want)
		}
	}
}
