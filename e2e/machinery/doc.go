// Package machinery holds an API against an API: named checks do what the API machinery tests of Kubernetes' own
// end-to-end suite do, and write down what a client sees. The same checks run at an API server and at what stands for it,
// each in namespaces of its own, and the two transcripts must be the same.
//
// A transcript is canonical: uids, resourceVersions, times, addresses and the names of namespaces are replaced by names
// that say which of them is the same as which, so that two runs compare.
//
// What may differ is a table (exceptions.go), each line with its reason. A line that nothing needs any more is an error,
// like a difference that no line allows.
package machinery
