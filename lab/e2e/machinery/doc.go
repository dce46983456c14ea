// Package machinery compares two APIs: named checks do what the API machinery tests of Kubernetes' own end-to-end suite do, and
// record what a client sees. The same checks run at an API server and at a server that stands in for it, each in its own
// namespaces, and the two transcripts must be equal.
//
// A transcript is canonical: uids, resourceVersions, times, addresses and names of namespaces are replaced by names that say
// which of them are equal, so that two runs can be compared.
//
// A table (exceptions.go) lists what may differ, each line with its reason. A line that nothing needs any more is an error,
// like a difference that no line allows.
package machinery
