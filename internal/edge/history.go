package edge

import "strconv"

// History numbers the cloud's histories. Revisions of two histories say nothing about each other, however they compare:
// a cloud that was restored from a backup, or rebuilt, counts from where the backup was. Whoever sees that raises the
// number. 0 is the first history, and what every hub begins with.
type History uint64

// String is the number for people to read.
func (h History) String() string { return strconv.FormatUint(uint64(h), 10) }
