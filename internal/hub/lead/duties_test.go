package lead

import (
	"context"
	"errors"
	"strings"
	"testing"

	"yurtcoordinator/internal/edge"
)

func TestDutiesLiveAndDieTogether(t *testing.T) {
	var terms [2]int32
	began := make(chan struct{})
	cannot := errors.New("cannot")
	lead := Together(
		Duty{"wait", func(ctx context.Context, term edge.Term) error {
			terms[0] = term.Transitions
			close(began)
			<-ctx.Done()
			return nil
		}},
		Duty{"fail", func(_ context.Context, term edge.Term) error {
			terms[1] = term.Transitions
			<-began
			return cannot
		}},
	)
	err := lead(t.Context(), edge.Term{Transitions: 7})
	if !errors.Is(err, cannot) || !strings.HasPrefix(err.Error(), "fail: ") || terms != [2]int32{7, 7} {
		t.Errorf("%v, in the terms %v", err, terms)
	}
}
