// Package release makes of built programs what a registry gets of a release, and the signed list of all that the release consists
// of. goreleaser builds the programs and packs them, by .goreleaser.yaml. The same programs, files and key make the same bytes,
// on every machine and at any time.
package release
