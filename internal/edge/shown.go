package edge

// A shown revision is one that the cloud never gave: a hub shows an object with it that it does not show as the cloud has it
// (ADR 19). Bit 62 is set, then follow the object's own revision and a digest of what is shown.
const (
	shownBit   = 62
	digestBits = 20
	maxShown   = Revision(1)<<(shownBit-digestBits) - 1
)

// Shown returns the revision with which an object of a revision is shown in another form, by a digest of that form. A revision
// that is too large for it, after 139 years of 1000 writes a second, stays as it is.
func Shown(revision Revision, digest uint32) Revision {
	if revision > maxShown {
		return revision
	}
	return 1<<shownBit | revision<<digestBits | Revision(digest>>(32-digestBits))
}

// Own returns the object's own revision, which the cloud has given, and whether r is one with which it was shown in another form.
func (r Revision) Own() (own Revision, shown bool) {
	if r>>shownBit != 1 {
		return r, false
	}
	return r >> digestBits & maxShown, true
}
