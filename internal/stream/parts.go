package stream

import (
	"errors"
	"fmt"
	"slices"
)

// errOtherList says that a part does not belong to the list that it should continue.
var errOtherList = errors.New("the next part is of another list")

// Extend adds the next part of a list to s, which begins as the zero Snapshot. It fails if the part has another type, revision or
// history than the parts before. Until Complete is called, s is not a valid Snapshot.
func (s *Snapshot) Extend(part Snapshot) error {
	if s.Revision == 0 {
		*s = part
		return nil
	}
	if part.Type != s.Type || part.Revision != s.Revision || part.History != s.History {
		return fmt.Errorf("%w: %s as %v at revision %s of history %s, after %s as %v at %s of %s", errOtherList,
			part.Type.GroupVersionKind, part.Type.Encoding, part.Revision, part.History,
			s.Type.GroupVersionKind, s.Type.Encoding, s.Revision, s.History)
	}
	s.Objects = append(s.Objects, part.Objects...)
	return nil
}

// Complete sorts the objects of a Snapshot, once all of its parts are there. It fails if a key occurs twice.
func (s *Snapshot) Complete() error {
	byKey := func(a, b Object) int { return a.Key.Compare(b.Key) }
	if !slices.IsSortedFunc(s.Objects, byKey) {
		slices.SortFunc(s.Objects, byKey)
	}
	for i, o := range s.Objects {
		if i > 0 && o.Key == s.Objects[i-1].Key {
			return fmt.Errorf("read a list: it has %s twice", o.Key)
		}
	}
	return nil
}
