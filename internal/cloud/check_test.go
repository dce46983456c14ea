package cloud

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestWhoLeads(t *testing.T) {
	held := func(by string, renewed int64) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(by), RenewTime: ptr.To(metav1.NewMicroTime(time.Unix(renewed, 0))),
		}}
	}
	for what, c := range map[string]struct {
		reads []*coordinationv1.Lease // nil: it can't be read; the last one stays
		want  string                  // who leads, or why nobody does
	}{
		"renewed":               {[]*coordinationv1.Lease{held("a", 1), held("a", 1), held("a", 2)}, "a"},
		"not renewed":           {[]*coordinationv1.Lease{held("a", 1)}, "a holds its Lease, and does not renew it (too long)"},
		"nobody":                {[]*coordinationv1.Lease{{}}, "nobody holds its Lease"},
		"released, and taken":   {[]*coordinationv1.Lease{held("a", 1), held("", 2), held("b", 3), held("b", 4)}, "b"},
		"taken by another":      {[]*coordinationv1.Lease{held("a", 1), held("b", 3)}, "and does not renew it"},
		"not read at first":     {[]*coordinationv1.Lease{nil, held("a", 1), held("a", 2)}, "a"},
		"no right, or no Lease": {[]*coordinationv1.Lease{nil}, "read its Lease: no"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), checkTimeout, errors.New("too long"))
			defer cancel()
			n := 0
			got, err := leads(ctx, func(context.Context) (*coordinationv1.Lease, error) {
				lease := c.reads[min(n, len(c.reads)-1)]
				if n++; lease == nil {
					return nil, errors.New("no")
				}
				return lease, nil
			})
			if err != nil {
				got = err.Error()
			}
			if (len(c.want) == 1) != (err == nil) || !strings.Contains(got, c.want) {
				t.Errorf("%s: %s, want %s", what, got, c.want)
			}
		})
	}
}
