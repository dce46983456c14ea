// Package release takes built programs. It makes everything that a registry gets of a release, and the signed list of all files
// and images of the release. goreleaser builds the programs and packs them, as .goreleaser.yaml says. The same programs, files
// and key give the same bytes, on every machine and at any time.
package release
