// Command pause is the first process of every Pod of the lab: it holds the Pod's namespaces open, reaps the orphans of a Pod
// that shares its process namespace, and ends when it is told to.
//
// The kernel gives process 1 of a namespace only the signals that it asks for, so pause asks for them.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	reap() // children that ended before the signal was asked for
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects all children that have ended; one signal may stand for many.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
