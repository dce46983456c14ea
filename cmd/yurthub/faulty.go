//go:build faulty

package main

import (
	"fmt"
	"os"
	"strings"
)

// A program that is built with the tag faulty does not serve on a node that has this file. Tests of an upgrade that goes back use
// it. No release has the tag.
func init() {
	const file = "/etc/yurthub/faulty"
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "--config=") {
		return
	}
	if _, err := os.Stat(file); err == nil {
		fmt.Fprintln(os.Stderr, "yurthub: it is faulty, as", file, "says")
		os.Exit(1)
	}
}
