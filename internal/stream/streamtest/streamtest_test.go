package streamtest

import (
	"context"
	"errors"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// memory is the simplest right Sink: it shows that the suite asks for nothing but the contract.
type memory struct {
	typ      stream.Type
	position edge.Revision
	model    Model
}

func (m *memory) Sink() stream.Sink        { return m }
func (m *memory) Type() stream.Type        { return m.typ }
func (m *memory) Content() []stream.Object { return m.model.Content() }
func (m *memory) Position() edge.Revision  { return m.position }

func (m *memory) Replace(ctx context.Context, s stream.Snapshot) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.Revision < m.position {
		return errors.New("older")
	}
	m.model, m.position = Model{}, s.Revision
	for _, o := range s.Objects {
		m.model[o.Key] = o
	}
	return nil
}

func (m *memory) Apply(_ context.Context, events []stream.Event) error {
	if m.position == 0 {
		return errors.New("incomplete")
	}
	for _, e := range events {
		if e.Object.Revision > m.position {
			m.model.Apply(e)
			m.position = e.Object.Revision
		}
	}
	return nil
}

func TestSinks(t *testing.T) {
	for _, typ := range []stream.Type{EndpointSlices, Widgets} {
		t.Run(typ.Kind, func(t *testing.T) {
			Sinks(t, func(*testing.T) SinkHarness { return &memory{typ: typ, model: Model{}} })
		})
	}
}

// The suites make real objects.
func TestObjectsCanBeScanned(t *testing.T) {
	for _, typ := range []stream.Type{EndpointSlices, Widgets} {
		o := Object(typ, "ns", "name", 7, "content")
		got, err := stream.Scan(typ.Encoding, o.Raw)
		if err != nil || got.Key != o.Key || got.Revision != 7 {
			t.Errorf("%s: %v, %v", typ.Kind, got, err)
		}
	}
}
