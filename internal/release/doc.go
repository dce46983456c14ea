// Package release makes a release from built programs: all that a registry gets of it, and the signed list of its files and
// images. goreleaser builds the programs and packs them, as .goreleaser.yaml says. The same programs, files and key give the same
// bytes, on every machine and at any time.
package release
