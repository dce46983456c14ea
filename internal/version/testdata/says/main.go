// Command says prints what it is made from.
package main

import (
	"fmt"

	"yurtcoordinator/internal/version"
)

func main() { fmt.Println(version.Get().Line("says")) }
