package edge

import (
	"fmt"
	"strings"
)

// Count formats a number with its noun, for people: "1 node", "3 nodes", "0 nodes". A verb may follow the noun: "1 node has", "3
// nodes have".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Some joins names, for people: "a, b". Of more than five it names five: "a, b, c, d, e and 3 more".
func Some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
