package edge

// A shown revision is one that no API server has given. A hub uses it for an object that it shows in another form than the cloud
// does (ADR 19). Bit 62 is set; below that bit come the object's own revision, and then a digest of the shown form.
const (
	shownBit   = 62
	digestBits = 20
	maxShown   = Revision(1)<<(shownBit-digestBits) - 1
)

// Shown returns the revision for an object that is shown in another form, from the object's own revision and a digest of that
// form. It returns a revision above maxShown as it is. At 1000 writes a second, a cloud takes 139 years to get there.
func Shown(revision Revision, digest uint32) Revision {
	if revision > maxShown {
		return revision
	}
	return 1<<shownBit | revision<<digestBits | Revision(digest>>(32-digestBits))
}

// Own returns the object's own revision, as the cloud gave it, and whether r is a shown revision.
func (r Revision) Own() (own Revision, shown bool) {
	if r>>shownBit != 1 {
		return r, false
	}
	return r >> digestBits & maxShown, true
}
