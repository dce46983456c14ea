package edge

import "fmt"

// Count says how many there are of something, for people: "1 node", "3 nodes", "0 nodes". one and many may go on: "1 node has",
// "3 nodes have".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
