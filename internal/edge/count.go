package edge

import "fmt"

// Count formats a number with its noun, for people: "1 node", "3 nodes", "0 nodes". one and many may contain more than the
// noun: "1 node has", "3 nodes have".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
