//go:build faulty

package main

import (
	"fmt"
	"os"
	"strings"
)

// A program that is built with the tag faulty refuses to serve on a node that has this file. Tests use it to make an upgrade
// roll back. No release has the tag.
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
