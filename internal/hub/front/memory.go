package front

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/live"
)

// answer is the cloud's answer to a question.
type answer struct {
	value []byte // JSON; nil: no
	holds time.Duration
	of    *User // the user whom it is about; nil for a no
}

// record is an answer on the disk.
type record struct {
	Said  *recall.Stamp   `json:"said"`
	Value json.RawMessage `json:"value"`

	key string
}

// memory holds the cloud's last answer to each question. It uses a recent answer without asking again, and an answer on the disk
// while the cloud cannot be asked.
type memory struct {
	disk   CallersDisk
	prefix string
	cloud  *live.Value[link.State]
	tenure Tenure
	fresh  *cache.LRUExpireCache // of []byte, or of error for a question without an answer
	asking singleflight.Group
	slots  chan struct{}
}

func newMemory(c CallersConfig, prefix string) *memory {
	return &memory{
		disk: c.Disk, prefix: prefix, cloud: c.Cloud, tenure: c.Tenure, fresh: cache.NewLRUExpireCache(maxKnown),
		slots: make(chan struct{}, maxAsking),
	}
}

// recall returns the answer to a question: a cached one, else the cloud's, else one from the disk that is still valid. If there
// is none of these, it returns ErrUnknown, wrapped with the reason. A nil value means that the answer is no.
func (m *memory) recall(
	ctx context.Context, question string, ask func(context.Context) (answer, error),
) ([]byte, error) {
	if value, err, ok := m.held(question); ok {
		return value, err
	}
	// The first caller asks for all; if it goes away, the others still get the answer.
	said, err, _ := m.asking.Do(question, func() (any, error) {
		if value, err, ok := m.held(question); ok {
			return value, err // another caller's answer came meanwhile
		}
		return m.find(context.WithoutCancel(ctx), question, ask)
	})
	value, _ := said.([]byte)
	return value, err
}

// held returns a fresh answer; ok is false if there is none.
func (m *memory) held(question string) (value []byte, err error, ok bool) {
	switch v, found := m.fresh.Get(question); v := v.(type) {
	case error:
		return nil, v, true
	case []byte:
		return v, nil, true
	default:
		return nil, nil, found
	}
}

func (m *memory) find(
	ctx context.Context, question string, ask func(context.Context) (answer, error),
) ([]byte, error) {
	key := m.prefix + question
	reason := errors.New("the link is down")
	if m.cloud.Get() != link.Down {
		said, err := m.fetch(ctx, ask)
		if err == nil {
			m.record(question, said)
			return said.value, nil
		}
		reason = err
	}
	known, holds := m.known(key)
	if holds != recall.Holds {
		err := fmt.Errorf("%w: %w", ErrUnknown, reason)
		m.fresh.Add(question, err, unknownFor)
		return nil, err
	}
	m.fresh.Add(question, []byte(known.Value), unknownFor)
	return known.Value, nil
}

// record records the cloud's answer to a question.
func (m *memory) record(question string, said answer) {
	m.fresh.Add(question, said.value, said.holds)
	m.remember(m.prefix+question, said)
}

// known returns an answer on the disk, and whether it is still valid. It drops an expired or unreadable answer.
func (m *memory) known(key string) (record, recall.TenureVerdict) {
	known := record{key: key}
	value, err := m.disk.Blob(key)
	if err != nil {
		return record{}, recall.Over
	}
	holds := recall.Over
	if json.Unmarshal(value, &known) == nil && known.Said != nil {
		holds = m.tenure.Judge(*known.Said)
	}
	if holds == recall.Over {
		m.drop(key)
	}
	return known, holds
}

// tidy drops expired answers, and returns the others.
func (m *memory) tidy() (left []record) {
	for _, key := range m.disk.Blobs(m.prefix) {
		if known, holds := m.known(key); holds != recall.Over {
			left = append(left, known)
		}
	}
	return left
}

// fetch waits for a slot and asks, both within askFor.
func (m *memory) fetch(ctx context.Context, ask func(context.Context) (answer, error)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
		return ask(ctx)
	case <-ctx.Done():
		return answer{}, fmt.Errorf("more than %d questions are under way: %w", maxAsking, ctx.Err())
	}
}

// remember writes an answer to the disk; a no deletes the earlier one.
func (m *memory) remember(key string, said answer) {
	if said.value == nil {
		m.drop(key)
		return
	}
	stamp := m.tenure.Stamp(said.of)
	if m.tenure.Judge(stamp) == recall.Over { // nothing is remembered of such a user
		m.drop(key)
		return
	}
	if old, holds := m.known(key); holds != recall.Over && bytes.Equal(old.Value, said.value) &&
		!m.tenure.Renews(stamp, *old.Said) {
		stamp = *old.Said // so the disk need not be written
	}
	value, err := json.Marshal(record{Said: &stamp, Value: said.value})
	if err != nil || m.disk.PutBlob(key, value) != nil {
		m.drop(key)
	}
}

func (m *memory) drop(key string) { m.disk.DropBlob(key) }
