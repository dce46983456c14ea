// Package release makes what a release of ours consists of. The same source, version of Go and settings make the same bytes, on
// every machine and at any time; signatures are the exception.
package release
