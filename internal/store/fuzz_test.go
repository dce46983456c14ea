package store

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream/streamtest"
)

func sampleHeader() header {
	id := slicesID
	id.Client, id.Namespace, id.Fields, id.Labels = "system:node", "ns", "metadata.name=x", "a=b,c"
	return header{
		id: id, typ: streamtest.EndpointSlices, at: edge.Moment{History: 3, Revision: 77},
		objects: tally{3, 4, 5}, read: 1e6 * time.Second,
		complete: true,
	}
}

// Whatever bytes are taken for a header or an object, nothing panics, and what is accepted is what would be written.
func FuzzDecode(f *testing.F) {
	f.Add(uint64(1), []byte(nil), sampleHeader().encode(1))
	for _, size := range []int{1, 5000} {
		o := object("ns", "name", 7, strings.Repeat("x", size))
		f.Add(uint64(1), []byte("ns\x00name"), new(coder).encode(1, []byte("ns\x00name"), o, false))
	}
	f.Fuzz(func(t *testing.T, number uint64, key, value []byte) {
		if h, err := decodeHeader(number, value); err == nil && !bytes.Equal(h.encode(number), value) {
			t.Errorf("header %+v is written as other bytes", h)
		}
		readsAgain(t, number, key, value)
		// The same with a checksum that is right.
		if h, err := decodeHeader(number, seal(ofHeader, number, nil, value)); err == nil {
			if again, err := decodeHeader(number, h.encode(number)); err != nil || !reflect.DeepEqual(h, again) {
				t.Errorf("header %+v comes back as %+v, %v", h, again, err)
			}
		}
		readsAgain(t, number, key, seal(ofObject, number, key, value))
	})
}

// readsAgain checks that what is accepted for an object is the same when it is written and read again.
func readsAgain(t *testing.T, number uint64, key, value []byte) {
	t.Helper()
	var c, other coder
	o, err := c.decode(number, key, value)
	if err != nil {
		return
	}
	if k, err := objectKey(o.Key); err != nil || !bytes.Equal(k, key) {
		t.Errorf("object %s has another key: %v", o.Key, err)
	}
	again, err := other.decode(number, key, new(coder).encode(number, key, o, false))
	if err != nil || again.Key != o.Key || again.Revision != o.Revision || !bytes.Equal(again.Raw, o.Raw) {
		t.Errorf("object %s comes back as %+v, %v", o.Key, again, err)
	}
	if value[formAt] == plain && !bytes.Equal(o.Raw, value[valueHead:]) {
		t.Errorf("object %s has other bytes", o.Key)
	}
}

// Whatever bytes are taken for a file, reading it ends, without a panic and in bounded memory.
func FuzzVerify(f *testing.F) {
	f.Add([]byte("no file"), uint32(0), byte(0))
	f.Add([]byte{}, uint32(4096*3+8), byte(3))
	file := smallFile(f)
	f.Fuzz(func(t *testing.T, junk []byte, at uint32, mask byte) {
		b := bytes.Clone(file)
		b[int(at)%len(b)] ^= mask
		copy(b[int(at)%len(b):], junk)
		for _, content := range [][]byte{junk, b} {
			c, err := verify(bytes.NewReader(content), int64(len(content)), nil)
			if err != nil {
				t.Fatal(err) // a reader of bytes never fails
			}
			for _, found := range c.collections {
				again, err := new(coder).scan(c.tree.Again(), found.number, found.bucket, nil)
				if err != nil || again != found.objects {
					t.Errorf("%s is said to be whole: %v, %v; want %v", found.id, again, err, found.objects)
				}
			}
		}
	})
}

func TestHeaderRoundTrip(t *testing.T) {
	h := sampleHeader()
	if got, err := decodeHeader(5, h.encode(5)); err != nil || !reflect.DeepEqual(got, h) {
		t.Fatalf("%+v, %v; want %+v", got, err, h)
	}
	if _, err := decodeHeader(6, h.encode(5)); err == nil {
		t.Fatal("another collection's header is accepted")
	}
}
